package relational

import (
	"context"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
)

var eventCauseTable = table[store.EventCause]{
	name:    "event_causes",
	columns: "id, account_id, kind, workflow_id, execution_id, queue, at, about",
	fields: func(c *store.EventCause) []any {
		return []any{
			&c.ID, &c.AccountID, &c.Kind, &c.WorkflowID, &c.ExecutionID, &c.Queue,
			timeField{&c.At},
			&c.Text,
		}
	},
	onConflict: "ON CONFLICT DO NOTHING",
}

var eventTable = table[store.Event]{
	name:    "operator_events",
	columns: "id, account_id, kind, workflow_id, node_id, input, decided_at, published_at",
	fields: func(e *store.Event) []any {
		return []any{
			&e.ID, &e.AccountID, &e.Kind, &e.WorkflowID, &e.NodeID, &e.Input,
			timeField{&e.DecidedAt},
			nullableTimeField{timeField{&e.PublishedAt}},
		}
	},
	onConflict: "ON CONFLICT DO NOTHING",
}

var ongoingConditionTable = table[store.OngoingCondition]{
	name:    "event_conditions",
	columns: "account_id, kind, subject, since",
	fields: func(c *store.OngoingCondition) []any {
		return []any{&c.AccountID, &c.Kind, &c.Subject, timeField{&c.Since}}
	},
	onConflict: "ON CONFLICT DO NOTHING",
}

// storeFailureCauses stores the event causes of failures.
func (s *Store) storeFailureCauses(
	ctx context.Context, tx Tx, failures []store.ExecutionFailure,
) error {
	if s.failureCause == nil {
		return nil
	}
	var causes []store.EventCause
	for _, f := range failures {
		if cause := s.failureCause(f); cause != nil {
			causes = append(causes, *cause)
		}
	}
	return eventCauseTable.insert(ctx, tx, causes)
}

// collectInTx returns the rows of source that condition selects, as the transaction sees them.
// condition holds the WHERE, ORDER BY and LIMIT clauses.
func collectInTx[T any](
	ctx context.Context, tx Tx, source table[T], condition string, args ...any,
) (found []T, err error) {
	err = tx.Query(ctx, func(row Row) error {
		item, err := source.scan(row)
		found = append(found, item)
		return err
	}, source.selectClause()+condition, args...)
	return found, err
}

// oldestCauses returns the oldest causes, at most MaxCausesPerDecision, except those that belong to
// the groups in except. The query reads the index one group at a time, so it does not read the
// causes of the excluded groups, of which there may be many.
func oldestCauses(
	ctx context.Context, tx Tx, except []store.CauseGroup,
) ([]store.EventCause, error) {
	if len(except) == 0 {
		return collectInTx(ctx, tx, eventCauseTable, `ORDER BY at, id LIMIT ?`,
			store.MaxCausesPerDecision)
	}
	names := make([]string, len(except))
	for i, g := range except {
		names[i] = g.Kind + ":" + g.AccountID // no kind contains a colon
	}
	var found []store.EventCause
	err := tx.Query(ctx, func(row Row) error {
		cause, err := eventCauseTable.scan(row)
		found = append(found, cause)
		return err
	}, `WITH RECURSIVE names (name) AS (
			SELECT min(kind || ':' || account_id) FROM event_causes
			UNION ALL
			SELECT (SELECT min(kind || ':' || account_id) FROM event_causes
				WHERE kind || ':' || account_id > name)
			FROM names WHERE name IS NOT NULL
		)
		SELECT `+eventCauseTable.columns+` FROM names CROSS JOIN event_causes
		WHERE kind || ':' || account_id = name AND NOT (name = ANY (?))
		ORDER BY at, id LIMIT ?`, store.SanitizeTexts(names), store.MaxCausesPerDecision)
	return found, err
}

// DecideEvents implements store.Events.
func (s *Store) DecideEvents(
	ctx context.Context, now, since time.Time, except []store.CauseGroup, decide func(
		causes []store.EventCause, decided []store.Event,
	) ([]store.Event, []string),
) error {
	return s.db.Write(ctx, "decide events", func(tx Tx) error {
		if err := tx.Lock(ctx, EventsLock, true); err != nil {
			return err
		}
		causes, err := oldestCauses(ctx, tx, except)
		if err != nil || len(causes) == 0 {
			return err
		}
		decided, err := collectInTx(ctx, tx, eventTable,
			`WHERE decided_at >= ? ORDER BY decided_at, id`, store.CeilTime(since))
		if err != nil {
			return err
		}
		for i := range decided {
			decided[i].Input = ""
		}
		added, used := decide(causes, decided)
		if err := eventTable.insert(ctx, tx, added); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM event_causes WHERE id = ANY (?)`,
			store.SanitizeTexts(used)); err != nil {
			return err
		}
		_, err = tx.Exec(ctx,
			`DELETE FROM operator_events WHERE published_at IS NOT NULL AND decided_at < ?`,
			store.CeilTime(now.Add(-store.EventRetention)))
		return err
	})
}

// HasEventCauses implements store.Events.
func (s *Store) HasEventCauses(ctx context.Context) (exist bool, err error) {
	err = s.db.Read(ctx, "has event causes", func(row Row) error {
		return row.Scan(&exist)
	}, `SELECT EXISTS (SELECT 1 FROM event_causes)`)
	return exist, err
}

// UnpublishedEvents implements store.Events.
func (s *Store) UnpublishedEvents(
	ctx context.Context, exceptWorkflows []string, limit int,
) ([]store.Event, error) {
	return Collect(ctx, s.db, "unpublished events", eventTable.scan,
		eventTable.selectClause()+`WHERE published_at IS NULL AND NOT (workflow_id = ANY (?))
			ORDER BY decided_at, id LIMIT ?`, store.SanitizeTexts(exceptWorkflows), limit)
}

// MarkEventsPublished implements store.Events.
func (s *Store) MarkEventsPublished(ctx context.Context, ids []string, at time.Time) error {
	if len(ids) == 0 {
		return nil
	}
	return s.db.Write(ctx, "events published", func(tx Tx) error {
		// The lock makes executors update the rows one after another, so that they cannot deadlock.
		if err := tx.Lock(ctx, EventsLock, true); err != nil {
			return err
		}
		_, err := tx.Exec(ctx,
			`UPDATE operator_events SET published_at = ? WHERE id = ANY (?)
				AND published_at IS NULL`, store.StoredTime(at), store.SanitizeTexts(ids))
		return err
	})
}

// OngoingConditions implements store.Events.
func (s *Store) OngoingConditions(ctx context.Context) ([]store.OngoingCondition, error) {
	return Collect(ctx, s.db, "event conditions", ongoingConditionTable.scan,
		ongoingConditionTable.selectClause()+`ORDER BY account_id, kind, subject`)
}

// ChangeOngoingConditions implements store.Events.
func (s *Store) ChangeOngoingConditions(
	ctx context.Context,
	changes []store.OngoingConditionChange,
) error {
	if len(changes) == 0 {
		return nil
	}
	return s.db.Write(ctx, "change event conditions", func(tx Tx) error {
		if err := tx.Lock(ctx, EventsLock, true); err != nil {
			return err
		}
		var causes []store.EventCause
		for _, c := range changes {
			query, args := `INSERT INTO event_conditions (account_id, kind, subject, since)
				VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING`,
				[]any{
					store.SanitizeText(c.AccountID), store.SanitizeText(c.Kind),
					store.SanitizeText(c.Subject), store.StoredTime(c.Since),
				}
			if c.Ended {
				query, args = `DELETE FROM event_conditions WHERE account_id = ? AND kind = ?
					AND subject = ?`, args[:3]
			}
			changed, err := tx.Exec(ctx, query, args...)
			if err != nil {
				return err
			}
			if changed > 0 && c.Cause != nil {
				causes = append(causes, *c.Cause)
			}
		}
		return eventCauseTable.insert(ctx, tx, causes)
	})
}

// AcquireConditionLease implements store.Events.
func (s *Store) AcquireConditionLease(
	ctx context.Context, caller string, now, until time.Time,
) (bool, error) {
	return write(ctx, s, "lead events", func(tx Tx) (bool, error) {
		if err := tx.Lock(ctx, EventsLock, true); err != nil {
			return false, err
		}
		changed, err := tx.Exec(ctx,
			`UPDATE event_lead SET caller = ?, until = ? WHERE caller = ? OR until < ?`,
			store.SanitizeText(caller), store.StoredTime(until), store.SanitizeText(caller),
			store.StoredTime(now))
		return changed > 0, err
	})
}
