package relational

import (
	"context"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// CountDeadLetters implements store.DeadLetters.
func (s *Store) CountDeadLetters(ctx context.Context, limit int) (n int, err error) {
	err = s.db.Read(ctx, "count dead letters", func(row Row) error { return row.Scan(&n) },
		`SELECT count(*) FROM (
			SELECT 1 FROM executions WHERE `+s.dialect.DeadLetterCondition+`
			UNION ALL SELECT 1 FROM unreadable WHERE dismissed_at IS NULL
			LIMIT ?) AS letters`, limit)
	return n, err
}

// MarkRequeued implements store.DeadLetters.
func (s *Store) MarkRequeued(
	ctx context.Context, requeued []store.Requeue,
) (marked []string, err error) {
	if len(requeued) == 0 {
		return nil, nil
	}
	return write(ctx, s, "mark requeued", func(tx Tx) ([]string, error) {
		return tx.MarkRequeued(ctx, requeued)
	})
}

// Dismiss implements store.DeadLetters.
func (s *Store) Dismiss(
	ctx context.Context, ids []string, messages []store.MessageKey, at time.Time, entry func(
		id string, message store.MessageKey,
	) store.AuditEntry,
) (dismissed []string, messageKeys []store.MessageKey, err error) {
	if len(ids)+len(messages) == 0 {
		return nil, nil, nil
	}
	err = s.db.Write(ctx, "dismiss", func(tx Tx) (err error) {
		if dismissed, messageKeys, err = tx.Dismiss(ctx, ids, messages,
			store.StoredTime(at)); err != nil {
			return err
		}
		return auditTable.insert(ctx, tx, store.DismissalAuditEntries(dismissed, messageKeys,
			entry))
	})
	if err != nil {
		return nil, nil, err
	}
	return dismissed, messageKeys, nil
}
