package store

import (
	"context"
	"time"
)

// Sessions stores which console sessions were ended before they expired. operate.RevokedSessions
// uses it.
type Sessions interface {
	// EndSession records that a console session has ended before its expiry. until is when the
	// session would have expired; the entry is kept until then. EndSession also deletes the entries
	// of sessions that expired before now.
	EndSession(ctx context.Context, id string, until, now time.Time) error

	// SessionEnded reports whether a session was ended by EndSession.
	SessionEnded(ctx context.Context, id string) (bool, error)
}
