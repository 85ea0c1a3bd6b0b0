package store

import (
	"context"
	"time"
)

// Sessions keeps which console sessions were ended before they expired. operate.RevokedSessions
// uses it.
type Sessions interface {
	// EndSession records that a console session has ended. It keeps the entry until the given time,
	// when the session would have expired anyway. It deletes entries of sessions that expired
	// before now.
	EndSession(ctx context.Context, id string, until, now time.Time) error

	// SessionEnded reports whether a session was ended by EndSession.
	SessionEnded(ctx context.Context, id string) (bool, error)
}
