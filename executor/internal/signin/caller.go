package signin

import (
	"context"
	"errors"
	"time"

	"github.com/hookstart/hookstart/executor/internal/operate"
)

type (
	callerKey struct{}
	endKey    struct{}
	stillKey  struct{}
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

// WithStill returns the context of a request with what SignIn.Still returned for it.
func WithStill(ctx context.Context, still func(context.Context) error) context.Context {
	return context.WithValue(ctx, stillKey{}, still)
}

// SignedOut reports whether the request's session was signed out meanwhile, as far as that can be known now.
func SignedOut(ctx context.Context) bool {
	still, _ := ctx.Value(stillKey{}).(func(context.Context) error)
	return still != nil && errors.Is(still(ctx), ErrUnknown)
}

// Caller is the request's caller; if nobody has signed in, the zero Caller, which every call refuses.
func Caller(ctx context.Context) operate.Caller {
	caller, _ := ctx.Value(callerKey{}).(operate.Caller)
	return caller
}
