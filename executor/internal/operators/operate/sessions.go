package operate

import (
	"context"
	"fmt"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/store"
)

// RevokedSessions records which console sessions were ended before they expired. The list is in the
// database, so that every executor rejects these sessions, even after a restart.
type RevokedSessions struct{ store store.Sessions }

// NewRevokedSessions returns the RevokedSessions stored in a database.
func NewRevokedSessions(ended store.Sessions) *RevokedSessions { return &RevokedSessions{ended} }

// Revoke ends a session that would otherwise expire at until. When it returns without an error,
// every executor rejects the session.
func (s *RevokedSessions) Revoke(ctx context.Context, id string, until time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if err := s.store.EndSession(ctx, id, until, time.Now()); err != nil {
		return &Error{Code: api.CodeUnavailable, Cause: fmt.Errorf("end a session: %w", err)}
	}
	return nil
}

// IsRevoked reports whether a session has been ended before it expired.
func (s *RevokedSessions) IsRevoked(ctx context.Context, id string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	ended, err := s.store.SessionEnded(ctx, id)
	if err != nil {
		return false, &Error{
			Code:  api.CodeUnavailable,
			Cause: fmt.Errorf("look a session up: %w", err),
		}
	}
	return ended, nil
}
