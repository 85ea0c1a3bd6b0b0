// Package measured is a store that tells how long the database takes.
package measured

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/ops"
)

// measured passes everything on. What it does not name is not measured.
type measured struct {
	store.Store
	duration *prometheus.HistogramVec
	failures *prometheus.CounterVec
}

// New is s, measured.
func New(s store.Store, registerer prometheus.Registerer) store.Store {
	m := &measured{
		Store: s,
		duration: prometheus.NewHistogramVec(
			ops.Histogram("hookstart_executor_database_duration_seconds", "How long the database took, by operation.", prometheus.ExponentialBuckets(0.0005, 4, 8)),
			[]string{"operation"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hookstart_executor_database_failures_total", Help: "Operations that the database did not do.",
		}, []string{"operation"}),
	}
	for _, operation := range []string{
		"apply", "add_duplicates", "add_refusals", "get", "get_many", "list", "list_oldest", "count_by_time", "tokens_last_used", "add_token_uses", "refusals", "all_refusals", "add_senders", "sender_seen", "minutes", "mark_requeued", "dismiss", "count_dead_letters", "list_unreadable", "prune", "prune_counts", "prune_early", "end_lost",
	} {
		m.duration.WithLabelValues(operation)
		m.failures.WithLabelValues(operation)
	}
	registerer.MustRegister(m.duration, m.failures)
	return m
}

func (m *measured) observe(ctx context.Context, operation string, began time.Time, err error) {
	m.duration.WithLabelValues(operation).Observe(time.Since(began).Seconds())
	if err != nil && !errors.Is(err, store.ErrNotFound) && ctx.Err() == nil {
		m.failures.WithLabelValues(operation).Inc()
	}
}

func (m *measured) Apply(ctx context.Context, batch store.Batch) (applied store.Applied, err error) {
	defer func(began time.Time) { m.observe(ctx, "apply", began, err) }(time.Now())
	return m.Store.Apply(ctx, batch)
}

func (m *measured) AddDuplicates(ctx context.Context, reportID string, at time.Time, counts map[string]int64) (err error) {
	defer func(began time.Time) { m.observe(ctx, "add_duplicates", began, err) }(time.Now())
	return m.Store.AddDuplicates(ctx, reportID, at, counts)
}

func (m *measured) Get(ctx context.Context, id string) (r store.Record, err error) {
	defer func(began time.Time) { m.observe(ctx, "get", began, err) }(time.Now())
	return m.Store.Get(ctx, id)
}

func (m *measured) GetMany(ctx context.Context, ids []string) (list []store.Record, err error) {
	defer func(began time.Time) { m.observe(ctx, "get_many", began, err) }(time.Now())
	return m.Store.GetMany(ctx, ids)
}

func (m *measured) List(ctx context.Context, filter store.Filter, after store.Position, limit int) (list []store.Record, err error) {
	defer func(began time.Time) { m.observe(ctx, "list", began, err) }(time.Now())
	return m.Store.List(ctx, filter, after, limit)
}

func (m *measured) CountByTime(ctx context.Context, filter store.Filter, step time.Duration) (counts []store.Count, err error) {
	defer func(began time.Time) { m.observe(ctx, "count_by_time", began, err) }(time.Now())
	return m.Store.CountByTime(ctx, filter, step)
}

func (m *measured) TokensLastUsed(ctx context.Context, tokenIDs []string) (used map[string]time.Time, err error) {
	defer func(began time.Time) { m.observe(ctx, "tokens_last_used", began, err) }(time.Now())
	return m.Store.TokensLastUsed(ctx, tokenIDs)
}

func (m *measured) AddTokenUses(ctx context.Context, uses []store.TokenUse) (err error) {
	defer func(began time.Time) { m.observe(ctx, "add_token_uses", began, err) }(time.Now())
	return m.Store.AddTokenUses(ctx, uses)
}

func (m *measured) Prune(ctx context.Context, before time.Time, limit int) (n int, err error) {
	defer func(began time.Time) { m.observe(ctx, "prune", began, err) }(time.Now())
	return m.Store.Prune(ctx, before, limit)
}

func (m *measured) AddRefusals(ctx context.Context, reportID string, at time.Time, refusals []store.Refusal) (err error) {
	defer func(began time.Time) { m.observe(ctx, "add_refusals", began, err) }(time.Now())
	return m.Store.AddRefusals(ctx, reportID, at, refusals)
}

func (m *measured) AddSenders(ctx context.Context, reportID string, at time.Time, seen []store.SenderSeen) (err error) {
	defer func(began time.Time) { m.observe(ctx, "add_senders", began, err) }(time.Now())
	return m.Store.AddSenders(ctx, reportID, at, seen)
}

func (m *measured) SenderSeen(ctx context.Context, workflowID, nodeID string) (seen store.SenderSeen, err error) {
	defer func(began time.Time) { m.observe(ctx, "sender_seen", began, err) }(time.Now())
	return m.Store.SenderSeen(ctx, workflowID, nodeID)
}

func (m *measured) Refusals(ctx context.Context, workflowID string, since time.Time) (sums []store.RefusalSum, err error) {
	defer func(began time.Time) { m.observe(ctx, "refusals", began, err) }(time.Now())
	return m.Store.Refusals(ctx, workflowID, since)
}

func (m *measured) AllRefusals(ctx context.Context, since time.Time, after store.RefusalPosition, limit int) (sums []store.WorkflowRefusalSum, err error) {
	defer func(began time.Time) { m.observe(ctx, "all_refusals", began, err) }(time.Now())
	return m.Store.AllRefusals(ctx, since, after, limit)
}

func (m *measured) Minutes(ctx context.Context, since time.Time) (counts []store.MinuteCount, err error) {
	defer func(began time.Time) { m.observe(ctx, "minutes", began, err) }(time.Now())
	return m.Store.Minutes(ctx, since)
}

func (m *measured) PruneCounts(ctx context.Context, before time.Time, keep, limit int) (n int, err error) {
	defer func(began time.Time) { m.observe(ctx, "prune_counts", began, err) }(time.Now())
	return m.Store.PruneCounts(ctx, before, keep, limit)
}

func (m *measured) ListOldest(ctx context.Context, filter store.Filter, after store.Position, limit int) (list []store.Record, err error) {
	defer func(began time.Time) { m.observe(ctx, "list_oldest", began, err) }(time.Now())
	return m.Store.ListOldest(ctx, filter, after, limit)
}

func (m *measured) MarkRequeued(ctx context.Context, requeued []store.Requeue) (marked []string, err error) {
	defer func(began time.Time) { m.observe(ctx, "mark_requeued", began, err) }(time.Now())
	return m.Store.MarkRequeued(ctx, requeued)
}

func (m *measured) Dismiss(ctx context.Context, ids []string, messages []store.MessageKey, at time.Time, audit func(id string, message store.MessageKey) store.AuditEntry) (dismissed []string, of []store.MessageKey, err error) {
	defer func(began time.Time) { m.observe(ctx, "dismiss", began, err) }(time.Now())
	return m.Store.Dismiss(ctx, ids, messages, at, audit)
}

func (m *measured) CountDeadLetters(ctx context.Context, limit int) (n int, err error) {
	defer func(began time.Time) { m.observe(ctx, "count_dead_letters", began, err) }(time.Now())
	return m.Store.CountDeadLetters(ctx, limit)
}

func (m *measured) ListUnreadable(ctx context.Context, filter store.UnreadableFilter, after store.UnreadablePosition, limit int) (list []store.Unreadable, err error) {
	defer func(began time.Time) { m.observe(ctx, "list_unreadable", began, err) }(time.Now())
	return m.Store.ListUnreadable(ctx, filter, after, limit)
}

func (m *measured) PruneEarly(ctx context.Context, before time.Time) (n int, err error) {
	defer func(began time.Time) { m.observe(ctx, "prune_early", began, err) }(time.Now())
	return m.Store.PruneEarly(ctx, before)
}

func (m *measured) EndLost(ctx context.Context, lost []store.Lost, at time.Time, reason string) (ended []string, err error) {
	defer func(began time.Time) { m.observe(ctx, "end_lost", began, err) }(time.Now())
	return m.Store.EndLost(ctx, lost, at, reason)
}
