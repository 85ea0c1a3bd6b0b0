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

// WithCaller returns the context of a request with its caller.
func WithCaller(ctx context.Context, caller operate.Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}

// WithEnd returns the context of a request with the end of its session; zero: it has none.
func WithEnd(ctx context.Context, end time.Time) context.Context {
	return context.WithValue(ctx, endKey{}, end)
}

// End is the end of the request's session; zero: it has none.
func End(ctx context.Context) time.Time {
	end, _ := ctx.Value(endKey{}).(time.Time)
	return end
}

// Caller is the request's caller; if nobody has signed in, the zero Caller, which every call refuses.
func Caller(ctx context.Context) operate.Caller {
	caller, _ := ctx.Value(callerKey{}).(operate.Caller)
	return caller
}
