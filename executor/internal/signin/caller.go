package signin

import (
	"context"
	"time"

	"github.com/hookstart/hookstart/executor/internal/operate"
)

type (
	callerKey struct{}
	endKey    struct{}
)

// WithCaller notes who makes the request whose context this is.
func WithCaller(ctx context.Context, caller operate.Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}

// WithEnd notes when the session ends with which the request is made; zero: it does not.
func WithEnd(ctx context.Context, end time.Time) context.Context {
	return context.WithValue(ctx, endKey{}, end)
}

// End is when that is; zero: it does not end.
func End(ctx context.Context) time.Time {
	end, _ := ctx.Value(endKey{}).(time.Time)
	return end
}

// Caller is who makes it; if nobody has signed in, the zero Caller, which no call accepts.
func Caller(ctx context.Context) operate.Caller {
	caller, _ := ctx.Value(callerKey{}).(operate.Caller)
	return caller
}
