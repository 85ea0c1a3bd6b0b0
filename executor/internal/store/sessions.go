package store

import (
	"context"
	"time"
)

// Sessions keeps the console sessions that were ended before they expired, for
// operate.RevokedSessions.
type Sessions interface {
	// EndSession records that a console session has ended. The session would have expired anyway at
	// the time until, and the entry is kept that long. EndSession also deletes the entries of
	// sessions that expired before now.
	EndSession(ctx context.Context, id string, until, now time.Time) error

	// SessionEnded reports whether a session was ended by EndSession.
	SessionEnded(ctx context.Context, id string) (bool, error)
}
