package relational

import (
	"context"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// EndSession implements store.Sessions.
func (s *Store) EndSession(ctx context.Context, id string, until, now time.Time) error {
	return s.db.Write(ctx, "end session", func(tx Tx) error {
		if _, err := tx.Exec(ctx, `DELETE FROM ended_sessions WHERE until < ?`,
			store.CeilTime(now)); err != nil {
			return err
		}
		_, err := tx.Exec(ctx,
			`INSERT INTO ended_sessions (id, until) VALUES (?, ?) ON CONFLICT DO NOTHING`,
			store.SanitizeText(id), store.StoredTime(until))
		return err
	})
}

// SessionEnded implements store.Sessions.
func (s *Store) SessionEnded(ctx context.Context, id string) (bool, error) {
	found, err := Collect(ctx, s.db, "session ended", func(row Row) (id string, err error) {
		err = row.Scan(&id)
		return id, err
	}, `SELECT id FROM ended_sessions WHERE id = ?`, store.SanitizeText(id))
	return len(found) > 0, err
}
