package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/relational"
	"github.com/hookstart/hookstart/shared/execution"
)

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, id string) (store.Record, error) {
	records, err := relational.Collect(ctx, s, "get", scan, selectRecords+`WHERE id = ?`, store.Text(id))
	if err != nil {
		return store.Record{}, err
	}
	if len(records) == 0 {
		return store.Record{}, store.ErrNotFound
	}
	return records[0], nil
}

// GetMany implements store.Store.
func (s *Store) GetMany(ctx context.Context, ids []string) ([]store.Record, error) {
	if len(ids) > store.MaxGetMany {
		return nil, fmt.Errorf("postgres: get many: %d IDs, at most %d", len(ids), store.MaxGetMany)
	}
	if len(ids) == 0 {
		return nil, nil
	}
	return relational.Collect(ctx, s, "get many", scan, selectRecords+`WHERE id = ANY (?)`, store.Texts(ids))
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, filter store.Filter, after store.Position, limit int) ([]store.Record, error) {
	return s.list(ctx, "list", newestFirst, filter, after, limit)
}

// ListOldest implements store.Store.
func (s *Store) ListOldest(ctx context.Context, filter store.Filter, after store.Position, limit int) ([]store.Record, error) {
	return s.list(ctx, "list oldest", oldestFirst, filter, after, limit)
}

// order is that of a list.
type order struct {
	after, by string
}

var (
	newestFirst = order{`(accepted_at, id) < (?, ?)`, ` ORDER BY accepted_at DESC, id DESC`}
	oldestFirst = order{`(accepted_at, id) > (?, ?)`, ` ORDER BY accepted_at, id`}
)

func (s *Store) list(ctx context.Context, what string, in order, filter store.Filter, after store.Position, limit int) ([]store.Record, error) {
	if limit <= 0 {
		return nil, nil
	}
	where := conditions(filter, in, after)
	return relational.Collect(ctx, s, what, scan, selectRecords+where.String()+in.by+` LIMIT ?`, append(where.Args, limit)...)
}

func conditions(filter store.Filter, in order, after store.Position) (where relational.Where) {
	if filter.DeliveryID != "" {
		where.Add(`delivery_id = ? AND delivery_id <> ''`, store.Text(filter.DeliveryID)) // the second is the partial index's condition
	}
	if prefix := store.Text(filter.DeliveryPrefix); prefix != "" {
		where.Add(`delivery_id >= ? AND delivery_id < ? AND delivery_id <> ''`, prefix, store.LastWithPrefix(prefix))
	}
	where.Is(`workflow_id`, filter.WorkflowID)
	where.Is(`account_id`, filter.AccountID)
	if filter.Status == execution.Failed || filter.Status == execution.Rejected {
		where.Is(`trouble`, string(filter.Status)) // the same as status, and indexed
	} else {
		where.Is(`status`, string(filter.Status))
	}
	if filter.DeadLetter {
		where.Add(dialect.DeadLetter) // as in the index
	}
	if filter.Reason != "" {
		where.Add(`strpos(error, ?) > 0`, store.Text(filter.Reason))
	}
	where.Is(`source`, string(filter.Source))
	where.Between(`accepted_at`, filter.Since, filter.Until)
	if after != (store.Position{}) {
		where.Add(in.after, store.Time(after.AcceptedAt), store.Text(after.ID))
	}
	return where
}

// CountByTime implements store.Store.
func (s *Store) CountByTime(ctx context.Context, filter store.Filter, step time.Duration) ([]store.Count, error) {
	where := conditions(filter, newestFirst, store.Position{})
	return relational.Collect(ctx, s, "count by time", func(row relational.Row) (c store.Count, err error) {
		err = row.Scan(&c.At, &c.Records)
		c.At = c.At.UTC()
		return c, err
	}, `SELECT date_bin(?::bigint * interval '1 microsecond', accepted_at, '1970-01-01T00:00:00Z') AS step, count(*)
		FROM executions `+where.String()+` GROUP BY step ORDER BY step`, append([]any{step.Microseconds()}, where.Args...)...)
}
