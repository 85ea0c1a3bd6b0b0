package operate

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/audit"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/registry/edit"
)

// DeadLetterSelection selects dead letters by IDs if IDs is not nil, and by Filter otherwise.
type DeadLetterSelection struct {
	IDs    []string
	Filter DeadLetterFilter
}

func (s DeadLetterSelection) check() error {
	switch f := s.Filter; {
	case len(s.IDs) > maxBulkIDs:
		return &edit.InvalidFieldError{Field: "ids", Problem: "must be at most 10000"}
	case s.IDs != nil &&
		(f.WorkflowID != "" || f.Reason != "" || !f.Since.IsZero() || !f.Until.IsZero()):
		return &edit.InvalidFieldError{
			Field:   "ids",
			Problem: "must not be combined with workflowId, reason, since or until",
		}
	}
	return nil
}

// splitIDs separates the IDs of executions from the IDs of messages that were put aside, and
// removes duplicates and message IDs with an invalid sequence.
func (s DeadLetterSelection) splitIDs() (executions []string, messages []store.MessageKey) {
	seen := make(map[string]bool, len(s.IDs))
	for _, id := range s.IDs {
		if seen[id] {
			continue
		}
		seen[id] = true
		key, isMessage := parseMessageDeadLetterID(id)
		switch {
		case !isMessage:
			executions = append(executions, id)
		case key.StreamSequence > 0:
			messages = append(messages, key)
		}
	}
	return executions, messages
}

// RequeueDeadLetters requeues dead letters, oldest first and at most Config.MaxBulkItems, each as
// RequeueExecution does. The result counts the dead letters requeued by this call. Repeated and
// concurrent calls requeue each dead letter only once.
func (s *Service) RequeueDeadLetters(
	ctx context.Context, caller Caller, selected DeadLetterSelection,
) (api.Requeued, error) {
	return runChange(ctx, s, caller,
		newAccessRule("RequeueDeadLetters", narrowToCallerAccount(&selected.Filter.AccountID)),
		bulkTimeout,
		func(ctx context.Context) (none api.Requeued, err error) {
			if err := selected.check(); err != nil {
				return none, err
			}
			b := s.newBulkRestart(caller, func(record store.Record) execution.Start {
				return execution.Start{ID: execution.IDForRequeue(record.ID), RerunOf: record.ID}
			})
			b.marksRequeued = true
			if selected.IDs != nil {
				err = b.requeueSelected(ctx, selected)
			} else {
				err = b.requeueMatching(ctx, selected.Filter)
			}
			return api.Requeued{
					Requeued: b.restartedCount,
					Left:     b.skippedCounts(),
					More:     b.mayHaveMore,
				},
				err
		})
}

func (b *bulkRestart) requeueSelected(ctx context.Context, selected DeadLetterSelection) error {
	ids, messages := selected.splitIDs()
	if err := b.service.sortByAcceptance(ctx, ids); err != nil {
		return err
	}
	for len(ids) > 0 && !b.limitReached() {
		chunk := ids[:min(len(ids), bulkBatchSize)]
		ids = ids[len(chunk):]
		letters, err := b.service.deadLettersOf(ctx, chunk, selected.Filter.AccountID)
		if err == nil {
			err = b.restartBatch(ctx, letters)
		}
		if err != nil {
			return err
		}
	}
	if selected.Filter.AccountID != "" { // the account of a message is not known
		return nil
	}
	return b.recoverMessages(ctx, messages)
}

// sortByAcceptance sorts execution IDs in the order in which the executions were accepted.
func (s *Service) sortByAcceptance(ctx context.Context, ids []string) error {
	accepted := make(map[string]time.Time, len(ids))
	for chunk := range slices.Chunk(ids, bulkBatchSize) {
		found, err := s.config.Store.GetMany(ctx, chunk)
		if err != nil {
			return err
		}
		for _, r := range found {
			accepted[r.ID] = r.AcceptedAt
		}
	}
	slices.SortFunc(ids, func(a, b string) int {
		return cmp.Or(accepted[a].Compare(accepted[b]), cmp.Compare(a, b))
	})
	return nil
}

// deadLettersOf looks up executions by ID, and returns the records of those that are dead letters
// and belong to the account, oldest first. An empty accountID means any account.
func (s *Service) deadLettersOf(
	ctx context.Context, ids []string, accountID string,
) ([]store.Record, error) {
	found, err := s.config.Store.GetMany(ctx, ids)
	if err != nil {
		return nil, err
	}
	var letters []store.Record
	for _, r := range found {
		if r.Status == execution.Failed && r.RequeuedAs == "" && r.DismissedAt.IsZero() &&
			(accountID == "" || r.AccountID == accountID) {
			letters = append(letters, r)
		}
	}
	slices.SortFunc(letters, func(a, b store.Record) int {
		return cmp.Or(a.AcceptedAt.Compare(b.AcceptedAt), cmp.Compare(a.ID, b.ID))
	})
	return letters, nil
}

func (b *bulkRestart) requeueMatching(ctx context.Context, filter DeadLetterFilter) error {
	if err := b.restartMatching(ctx, filter.RecordFilter()); err != nil || filter.AccountID != "" {
		return err
	}
	aside := store.AsideFilter{
		WorkflowID: filter.WorkflowID,
		Reason:     filter.Reason,
		Since:      filter.Since,
		Until:      filter.Until,
	}
	after := store.AsidePosition{}
	for !b.limitReached() {
		found, err := b.service.config.Store.ListAside(ctx, aside, after, bulkBatchSize)
		if err != nil {
			return err
		}
		keys := make([]store.MessageKey, len(found))
		for i, u := range found {
			keys[i] = messageKeyOf(u)
			after = store.AsidePosition{At: u.At, StreamSequence: u.StreamSequence}
		}
		if err := b.recoverMessages(ctx, keys); err != nil || len(found) < bulkBatchSize {
			return err
		}
	}
	return nil
}

// recoverMessages records messages that were put aside, and skips messages that still cannot be
// recorded.
func (b *bulkRestart) recoverMessages(ctx context.Context, messages []store.MessageKey) error {
	for _, key := range messages {
		if b.limitReached() {
			return nil
		}
		_, recovered, err := b.service.recoverMessage(ctx, messageDeadLetterID(key), key)
		if err != nil {
			err = b.countIfSkippable(err)
		}
		if err != nil {
			return err
		}
		if recovered {
			b.restartedCount++
		}
	}
	return nil
}

// DismissDeadLetters removes dead letters from the list. With a filter, it removes at most
// Config.MaxBulkItems of them. A dismissed execution stays failed. A dismissed message stays in the
// stream without a record. The result counts the dead letters removed by this call.
func (s *Service) DismissDeadLetters(
	ctx context.Context, caller Caller, selected DeadLetterSelection,
) (api.Dismissed, error) {
	return runChange(ctx, s, caller,
		newAccessRule("DismissDeadLetters", narrowToCallerAccount(&selected.Filter.AccountID)),
		bulkTimeout,
		func(ctx context.Context) (result api.Dismissed, err error) {
			if err := selected.check(); err != nil {
				return result, err
			}
			if selected.IDs != nil {
				result.Dismissed, err = s.dismissSelected(ctx, selected)
				return result, err
			}
			return s.dismissMatching(ctx, selected.Filter)
		})
}

func (s *Service) dismissSelected(
	ctx context.Context, selected DeadLetterSelection,
) (dismissed int, err error) {
	ids, messages := selected.splitIDs()
	if selected.Filter.AccountID != "" {
		messages = nil // messages without a record have no known account, so none can match
	}
	for len(ids)+len(messages) > 0 {
		chunk := ids[:min(len(ids), bulkBatchSize)]
		ids = ids[len(chunk):]
		if selected.Filter.AccountID != "" {
			letters, err := s.deadLettersOf(ctx, chunk, selected.Filter.AccountID)
			if err != nil {
				return dismissed, err
			}
			chunk = nil
			for _, r := range letters {
				chunk = append(chunk, r.ID)
			}
		}
		keys := messages[:min(len(messages), bulkBatchSize)]
		messages = messages[len(keys):]
		n, err := s.dismiss(ctx, chunk, keys)
		dismissed += n
		if err != nil {
			return dismissed, err
		}
	}
	return dismissed, nil
}

func (s *Service) dismissMatching(
	ctx context.Context, filter DeadLetterFilter,
) (result api.Dismissed, err error) {
	deadline := time.Now().Add(bulkTimeout - lastBatchTimeReserve)
	last := store.DeadLetter{}
	for result.Dismissed < s.config.MaxBulkItems && time.Now().Before(deadline) {
		limit := min(bulkBatchSize, s.config.MaxBulkItems-result.Dismissed)
		found, err := store.ListDeadLetters(ctx, s.config.Store, filter, last, limit)
		if err != nil {
			return result, err
		}
		var ids []string
		var messages []store.MessageKey
		for _, d := range found {
			last = d
			if d.Record != nil {
				ids = append(ids, d.Record.ID)
			} else {
				messages = append(messages, messageKeyOf(*d.Message))
			}
		}
		n, err := s.dismiss(ctx, ids, messages)
		result.Dismissed += n
		if err != nil || len(found) < limit {
			return result, err
		}
	}
	result.More = true
	return result, nil
}

func (s *Service) dismiss(
	ctx context.Context, ids []string, messages []store.MessageKey,
) (int, error) {
	records, err := s.config.Store.GetMany(ctx, ids)
	if err != nil {
		return 0, err
	}
	about := make(map[string]store.Record, len(records))
	for _, r := range records {
		about[r.ID] = r
	}
	now := time.Now()
	dismissed, messageKeys, err := s.config.Store.Dismiss(ctx, ids, messages, now, func(
		id string, message store.MessageKey,
	) store.AuditEntry {
		letter := id
		if letter == "" {
			letter = messageDeadLetterID(message)
		}
		return audit.NewDismissEntry(letter, now, edit.ActorOf(ctx), about[id])
	})
	if err != nil {
		return 0, err
	}
	// Ignore the error: a watcher that misses this notification sees the change at its next query.
	_ = s.config.Changes.Publish(dismissed)
	return len(dismissed) + len(messageKeys), nil
}
