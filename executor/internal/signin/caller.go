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

// WithCaller returns a context with the caller of the request.
func WithCaller(ctx context.Context, caller operate.Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}

// WithEnd returns a context with the end of the request's session. The zero time means that the
// session has none.
func WithEnd(ctx context.Context, end time.Time) context.Context {
	return context.WithValue(ctx, endKey{}, end)
}

// End returns the end of the request's session, or the zero time if it has none.
func End(ctx context.Context) time.Time {
	end, _ := ctx.Value(endKey{}).(time.Time)
	return end
}

// WithSessionCheck returns a context with the function that SignIn.SessionCheck returned for the
// request.
func WithSessionCheck(ctx context.Context, still func(context.Context) error) context.Context {
	return context.WithValue(ctx, stillKey{}, still)
}

// SignedOut reports whether the request's session was signed out meanwhile, as far as that can be
// determined now.
func SignedOut(ctx context.Context) bool {
	still, _ := ctx.Value(stillKey{}).(func(context.Context) error)
	return still != nil && errors.Is(still(ctx), ErrUnknown)
}

// Caller returns the request's caller. If no one is signed in, that is the zero Caller, which every
// call refuses.
func Caller(ctx context.Context) operate.Caller {
	caller, _ := ctx.Value(callerKey{}).(operate.Caller)
	return caller
}
