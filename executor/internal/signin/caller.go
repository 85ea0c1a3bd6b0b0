package signin

import (
	"context"

	"github.com/hookstart/hookstart/executor/internal/operate"
)

type callerKey struct{}

// WithCaller notes who makes the request whose context this is.
func WithCaller(ctx context.Context, caller operate.Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}

// Caller is who makes it; if nobody has signed in, the zero Caller, which no call accepts.
func Caller(ctx context.Context) operate.Caller {
	caller, _ := ctx.Value(callerKey{}).(operate.Caller)
	return caller
}
