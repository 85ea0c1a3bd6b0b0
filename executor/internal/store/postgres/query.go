package postgres

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
)

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, id string) (store.Record, error) {
	records, err := read(ctx, s, "get", scan, selectRecords+`WHERE id = $1`, store.Text(id))
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
	return read(ctx, s, "get many", scan, selectRecords+`WHERE id = ANY ($1)`, store.Texts(ids))
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
	where, args := conditions(filter, in, after)
	args = append(args, limit)
	return read(ctx, s, what, scan, selectRecords+where+in.by+` LIMIT $`+strconv.Itoa(len(args)), args...)
}

func conditions(filter store.Filter, in order, after store.Position) (where string, args []any) {
	var terms []string
	add := func(term string, values ...any) {
		for _, v := range values {
			args = append(args, v)
			term = strings.Replace(term, "?", "$"+strconv.Itoa(len(args)), 1)
		}
		terms = append(terms, term)
	}
	if filter.DeliveryID != "" {
		add(`delivery_id = ? AND delivery_id <> ''`, store.Text(filter.DeliveryID)) // the second is the partial index's condition
	}
	if prefix := store.Text(filter.DeliveryPrefix); prefix != "" {
		add(`delivery_id >= ? AND delivery_id < ? AND delivery_id <> ''`, prefix, store.LastWithPrefix(prefix))
	}
	if filter.WorkflowID != "" {
		add(`workflow_id = ?`, store.Text(filter.WorkflowID))
	}
	if filter.AccountID != "" {
		add(`account_id = ?`, store.Text(filter.AccountID))
	}
	switch filter.Status {
	case "":
	case execution.Failed, execution.Rejected:
		add(`trouble = ?`, string(filter.Status)) // the same as status, and indexed
	case execution.Queued, execution.Running, execution.Succeeded:
		add(`status = ?`, string(filter.Status))
	default:
		add(`status = ?`, store.Text(string(filter.Status)))
	}
	if filter.DeadLetter {
		add(`trouble = 'failed' AND requeued_as = '' AND dismissed_at IS NULL`) // as in the index
	}
	if filter.Reason != "" {
		add(`strpos(error, ?) > 0`, store.Text(filter.Reason))
	}
	if filter.Source != "" {
		add(`source = ?`, store.Text(string(filter.Source)))
	}
	if !filter.Since.IsZero() {
		add(`accepted_at >= ?`, store.Bound(filter.Since))
	}
	if !filter.Until.IsZero() {
		add(`accepted_at < ?`, store.Bound(filter.Until))
	}
	if after != (store.Position{}) {
		add(in.after, store.Time(after.AcceptedAt), store.Text(after.ID))
	}
	if len(terms) == 0 {
		return "", nil
	}
	return `WHERE ` + strings.Join(terms, ` AND `), args
}

// CountByTime implements store.Store.
func (s *Store) CountByTime(ctx context.Context, filter store.Filter, step time.Duration) ([]store.Count, error) {
	where, args := conditions(filter, newestFirst, store.Position{})
	args = append(args, step.Microseconds())
	counts, err := read(ctx, s, "count by time", pgx.RowToStructByPos[store.Count],
		`SELECT date_bin($`+strconv.Itoa(len(args))+`::bigint * interval '1 microsecond', accepted_at, '1970-01-01T00:00:00Z') AS step, count(*)
		FROM executions `+where+` GROUP BY step ORDER BY step`, args...)
	for i := range counts {
		counts[i].At = counts[i].At.UTC()
	}
	return counts, err
}

// TokensLastUsed implements store.Store.
func (s *Store) TokensLastUsed(ctx context.Context, tokenIDs []string) (map[string]time.Time, error) {
	uses, err := read(ctx, s, "tokens last used", pgx.RowToStructByPos[store.TokenUse],
		`SELECT token_id, last_used_at FROM token_uses WHERE token_id = ANY ($1)`, store.Texts(tokenIDs))
	if err != nil {
		return nil, err
	}
	used := make(map[string]time.Time, len(uses))
	for _, u := range uses {
		used[u.TokenID] = u.At.UTC()
	}
	return used, nil
}

// GetUnreadable implements store.Store.
func (s *Store) GetUnreadable(ctx context.Context, key store.MessageKey) (store.Unreadable, error) {
	found, err := read(ctx, s, "get unreadable", pgx.RowToStructByPos[store.Unreadable],
		`SELECT stream_sequence, subject, reason, at FROM unreadable WHERE stream_sequence = $1 AND subject LIKE 'executions.progress.%' = $2`, store.Sequence(key.StreamSequence), key.Progress)
	if err != nil {
		return store.Unreadable{}, err
	}
	if len(found) == 0 {
		return store.Unreadable{}, store.ErrNotFound
	}
	found[0].At = found[0].At.UTC()
	return found[0], nil
}

// ListUnreadable implements store.Store.
func (s *Store) ListUnreadable(ctx context.Context, filter store.UnreadableFilter, after store.UnreadablePosition, limit int) ([]store.Unreadable, error) {
	if limit <= 0 {
		return nil, nil
	}
	query, args := `SELECT stream_sequence, subject, reason, at FROM unreadable WHERE dismissed_at IS NULL`, []any{limit}
	add := func(term string, value any) {
		args = append(args, value)
		query += ` AND ` + strings.Replace(term, "?", "$"+strconv.Itoa(len(args)), 1)
	}
	if after != (store.UnreadablePosition{}) {
		query += ` AND (at, stream_sequence) < ($2, $3)`
		args = append(args, store.Time(after.At), store.Sequence(after.StreamSequence))
	}
	if filter.WorkflowID != "" {
		add(`subject LIKE ?`, store.SubjectPattern(filter.WorkflowID))
	}
	if filter.Reason != "" {
		add(`strpos(reason, ?) > 0`, store.Text(filter.Reason))
	}
	if !filter.Since.IsZero() {
		add(`at >= ?`, store.Bound(filter.Since))
	}
	if !filter.Until.IsZero() {
		add(`at < ?`, store.Bound(filter.Until))
	}
	found, err := read(ctx, s, "list unreadable", pgx.RowToStructByPos[store.Unreadable], query+` ORDER BY at DESC, stream_sequence DESC LIMIT $1`, args...)
	for i := range found {
		found[i].At = found[i].At.UTC()
	}
	return found, err
}

// read runs one query, with the error labelled.
func read[T any](ctx context.Context, s *Store, what string, row pgx.RowToFunc[T], query string, args ...any) ([]T, error) {
	rows, err := s.pool.Query(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("postgres: %s: %w", what, withCancellation(ctx, err))
	}
	found, err := pgx.CollectRows(rows, row)
	if err != nil {
		return nil, fmt.Errorf("postgres: %s: %w", what, withCancellation(ctx, err))
	}
	return found, nil
}
