package signin

import (
	"context"
	"errors"
	"time"

	"github.com/hookstart/hookstart/executor/internal/operators/operate"
)

type (
	callerKey       struct{}
	sessionEndKey   struct{}
	sessionCheckKey struct{}
)

// WithCaller returns a context with the caller of the request.
func WithCaller(ctx context.Context, caller operate.Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}

// WithSessionExpiry returns a context with the expiry time of the request's session. The zero time
// means that there is no session.
func WithSessionExpiry(ctx context.Context, end time.Time) context.Context {
	return context.WithValue(ctx, sessionEndKey{}, end)
}

// SessionExpiry returns the expiry time of the request's session, or the zero time if there is no
// session.
func SessionExpiry(ctx context.Context) time.Time {
	end, _ := ctx.Value(sessionEndKey{}).(time.Time)
	return end
}

// WithSessionCheck returns a context with the function that Authenticator.SessionCheck returned for
// the request. The function checks whether the request's session is still valid. It is nil if there
// is no session.
func WithSessionCheck(ctx context.Context, check func(context.Context) error) context.Context {
	return context.WithValue(ctx, sessionCheckKey{}, check)
}

// SessionRevoked reports whether the session of the request has been signed out. It returns false
// if there is no session, or if the state of the session cannot be determined.
func SessionRevoked(ctx context.Context) bool {
	check, _ := ctx.Value(sessionCheckKey{}).(func(context.Context) error)
	return check != nil && errors.Is(check(ctx), ErrUnauthenticated)
}

// Caller returns the request's caller. If nobody is signed in, it returns the zero Caller, which
// has no permissions.
func Caller(ctx context.Context) operate.Caller {
	caller, _ := ctx.Value(callerKey{}).(operate.Caller)
	return caller
}
