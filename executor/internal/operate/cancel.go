package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/recorder"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/stream"
)

// How an execution is canceled, so that every reader sees one end of it, whatever ends at whatever
// time.
//
//  1. The database notes, in one transaction with the entry of the audit, that the end is asked
//     for. From here on the request survives: SettleCancellations does the rest again after a
//     process has ended.
//  2. The bucket cancellations gets the key of the execution. Runners ask for it after a message
//     has come and before its handler begins, and while it works: see package runner.
//  3. The server is asked whether any group was given the message. If none was, every group that
//     gets it later finds the key, so no handler ever begins: the database ends the record as
//     canceled, if it is still queued. If one was, that runner ends it: it reports CANCELED, or the
//     end that its handler came to.
//
// The end is decided by the database: of all final states the first one that a transaction writes
// stays, and all later ones change nothing. So a cancel that races an end has that outcome for
// everybody; a report that was stored before the cancel, and is not recorded yet, is one of a
// message that was given, which step 3 leaves alone. A message that is delivered again, to
// whomever, meets the key, which stays for as long as messages do. A requeue or a replay is another
// execution with another ID, and begins only after this one has ended.

const (
	// settleEvery is how often SettleCancellations looks.
	settleEvery = 5 * time.Second
	// cancelBatch is how many executions are canceled together.
	cancelBatch = 500
	// cancelPuts is how many keys are stored at once.
	cancelPuts = 32
)

// CancelExecution cancels an execution: at once if it was not given to a runner, else that one ends
// it. One that is to end already is no error; one that has ended is.
func (s *Service) CancelExecution(
	ctx context.Context, caller Caller, id string,
) (Execution, error) {
	return change(ctx, s, caller, needs(Editor, ofExecution(id)), 2*readTimeout, func(
		ctx context.Context,
	) (none Execution, err error) {
		record, err := s.record(ctx, id)
		if err != nil {
			return none, err
		}
		if record.Status.Final() {
			return none, alreadyEnded(record)
		}
		if _, _, err := s.cancel(ctx, []store.Record{record}, s.cancelEntry(ctx, []store.Record{
			record,
		})); err != nil {
			return none, err
		}
		if record, err = s.record(ctx, id); err != nil {
			return none, err
		}
		if record.CancelRequestedAt.IsZero() {
			return none, alreadyEnded(record) // by itself, meanwhile
		}
		return executionOf(record), nil
	})
}

func alreadyEnded(r store.Record) error {
	return &Error{
		Code:   api.CodeAlreadyEnded,
		Detail: fmt.Sprintf("The execution is %s: it has ended.", r.Status),
	}
}

// CancelSelection selects executions: by IDs, if IDs is not nil, else those of a workflow, by a
// filter.
type CancelSelection struct {
	IDs    []string
	Filter ExecutionFilter
}

func (c CancelSelection) check() error {
	switch f := c.Filter; {
	case len(c.IDs) > MaxBulk:
		return &edit.InvalidError{Field: "ids", Problem: fmt.Sprintf("must be at most %d", MaxBulk)}
	case c.IDs != nil && (f.WorkflowID != "" || !f.Since.IsZero() || !f.Until.IsZero()):
		return &edit.InvalidError{
			Field:   "ids",
			Problem: "must not be combined with workflowId, since or until",
		}
	case c.IDs == nil && f.WorkflowID == "":
		return &edit.InvalidError{Field: "workflowId", Problem: "is required, unless ids are given"}
	}
	return nil
}

// CancelExecutions cancels executions that have not ended, the oldest first, at most MaxBulk of
// them. It can be repeated.
func (s *Service) CancelExecutions(
	ctx context.Context, caller Caller, selected CancelSelection,
) (api.Canceled, error) {
	return change(ctx, s, caller, needs(Editor, within(&selected.Filter.AccountID)), bulkTimeout,
		func(ctx context.Context) (done api.Canceled, err error) {
			if err := selected.check(); err != nil {
				return done, err
			}
			until := time.Now().Add(bulkTimeout - bulkReserve)
			count := func(records []store.Record) error {
				records = slices.DeleteFunc(records, func(r store.Record) bool {
					return r.Status.Final() || !r.CancelRequestedAt.IsZero() ||
						selected.Filter.AccountID != "" && r.AccountID != selected.Filter.AccountID
				})
				canceled, requested, err := s.cancel(ctx, records, s.cancelEntry(ctx, records))
				done.Canceled, done.Requested = done.Canceled+canceled,
					done.Requested+requested-canceled
				return err
			}
			if selected.IDs != nil {
				for ids := range slices.Chunk(selected.IDs, cancelBatch) {
					if done.More = time.Now().After(until); done.More {
						return done, nil
					}
					records, err := s.config.Store.GetMany(ctx, ids)
					if err == nil {
						err = count(records)
					}
					if err != nil {
						return done, err
					}
				}
				return done, nil
			}
			for _, selected.Filter.Status = range []execution.Status{
				execution.Queued, execution.Running,
			} {
				var after store.Position
				for {
					if done.More = time.Now().After(until) ||
						done.Canceled+done.Requested >= MaxBulk; done.More {
						return done, nil
					}
					records, err := s.config.Store.ListOldest(ctx, selected.Filter, after,
						cancelBatch)
					if err != nil {
						return done, err
					}
					last := len(records) < cancelBatch
					if len(records) > 0 {
						after = store.Position{
							AcceptedAt: records[len(records)-1].AcceptedAt,
							ID:         records[len(records)-1].ID,
						}
					}
					if err := count(records); err != nil {
						return done, err
					}
					if last {
						break
					}
				}
			}
			return done, nil
		})
}

// cancelEntry makes the entries of the audit for records.
func (s *Service) cancelEntry(
	ctx context.Context, records []store.Record,
) func(id string) store.AuditEntry {
	about, actor, now := map[string]store.Record{}, edit.ActorOf(ctx), time.Now()
	for _, r := range records {
		about[r.ID] = r
	}
	return func(id string) store.AuditEntry {
		return recorder.AuditAction(uuid.Must(uuid.NewV7()).String(), now, actor,
			recorder.ActionCancel, about[id], edit.Changed{Field: recorder.FieldExecution, To: id})
	}
}

// cancel does the three steps with records. It counts those that it ended, and those of which the
// end was not asked for before.
func (s *Service) cancel(
	ctx context.Context, records []store.Record, entry func(id string) store.AuditEntry,
) (canceled, requested int, err error) {
	if len(records) == 0 {
		return 0, 0, nil
	}
	asked, err := s.config.Store.RequestCancel(ctx, idsOf(records), time.Now(), entry)
	if err != nil {
		return 0, 0, err
	}
	ended, err := s.finishCancel(ctx, records)
	// A watcher that misses it sees the change at its next query.
	_ = s.config.Changes.Publish(append(asked, ended...))
	return len(ended), len(asked), err
}

func idsOf(records []store.Record) []string {
	ids := make([]string, len(records))
	for i, r := range records {
		ids[i] = r.ID
	}
	return ids
}

// finishCancel does the second and the third step with records whose end is asked for, and returns
// those that it ended.
func (s *Service) finishCancel(
	ctx context.Context, records []store.Record,
) (ended []string, err error) {
	bucket, err := s.config.JetStream.KeyValue(ctx, stream.CancellationsBucket)
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", stream.CancellationsBucket, err)
	}
	if err := putCancellations(ctx, bucket, idsOf(records)); err != nil {
		return nil, err
	}
	given, err := s.config.Queues.Given(ctx, records)
	if err != nil {
		return nil, err
	}
	var waiting []string
	for _, r := range records {
		if !given[r.ID] {
			waiting = append(waiting, r.ID)
		}
	}
	now := time.Now()
	ended, err = s.config.Store.Cancel(ctx, waiting, now)
	s.reportCanceled(records, ended, now)
	return ended, err
}

// reportCanceled reports the ends of executions that no runner was given, for requests whose
// answers wait for them. A report that is lost makes such an answer say that the execution is
// queued, until a runner finds the cancellation.
func (s *Service) reportCanceled(records []store.Record, ended []string, at time.Time) {
	for _, r := range records {
		if !slices.Contains(ended, r.ID) {
			continue
		}
		msg, err := stream.ProgressMessage(r.Queue, r.WorkflowID, r.NodeID, "", execution.Progress{
			ID:     r.ID,
			Status: execution.Canceled,
			At:     at,
		})
		if err == nil {
			_ = s.config.JetStream.Conn().PublishMsg(msg)
		}
	}
}

func putCancellations(ctx context.Context, bucket jetstream.KeyValue, ids []string) error {
	failures := make(chan error, len(ids))
	places := make(chan struct{}, cancelPuts)
	for _, id := range ids {
		places <- struct{}{}
		go func() {
			failures <- stream.PutCancellation(ctx, bucket, id, time.Now())
			<-places
		}()
	}
	var failed error
	for range ids {
		failed = errors.Join(failed, <-failures)
	}
	return failed
}

// SettleCancellations completes what a process that ended has begun to cancel, and what a database
// or a bucket that is older than the other one has lost, until the context ends. maxAge is that of
// the stream's messages.
func SettleCancellations(ctx context.Context, s *Service, maxAge time.Duration) {
	for restored := false; ctx.Err() == nil; retry.Sleep(ctx, settleEvery) {
		if !restored {
			restored = s.compareCancellations(ctx, maxAge) == nil
		}
		_ = s.eachCanceled(ctx, store.Filter{Canceling: true}, func(records []store.Record) error {
			ended, err := s.finishCancel(ctx, records)
			_ = s.config.Changes.Publish(ended)
			return err
		}) // an error: the next round tries again
	}
}

// eachCanceled passes the records of a filter on, in batches, the oldest first.
func (s *Service) eachCanceled(
	ctx context.Context, filter store.Filter, do func([]store.Record) error,
) error {
	var after store.Position
	for {
		records, err := s.config.Store.ListOldest(ctx, filter, after, cancelBatch)
		if err != nil || len(records) == 0 {
			return err
		}
		after = store.Position{
			AcceptedAt: records[len(records)-1].AcceptedAt,
			ID:         records[len(records)-1].ID,
		}
		if err := do(records); err != nil || len(records) < cancelBatch {
			return err
		}
	}
}

// compareCancellations gives the bucket the keys of executions that are canceled, and asks for the
// end of those that the bucket has and the database does not know of: after a power cut or a
// restored copy, one of them is older.
func (s *Service) compareCancellations(ctx context.Context, maxAge time.Duration) error {
	bucket, err := s.config.JetStream.KeyValue(ctx, stream.CancellationsBucket)
	if err != nil {
		return err
	}
	if err := s.eachCanceled(ctx, store.Filter{
		Status: execution.Canceled,
		Since:  time.Now().Add(-maxAge),
	}, func(records []store.Record) error {
		return putCancellations(ctx, bucket, idsOf(records))
	}); err != nil {
		return err
	}
	var ids []string
	request := func() error {
		// It was in the audit when it was asked for.
		_, err := s.config.Store.RequestCancel(ctx, ids, time.Now(), nil)
		ids = ids[:0]
		return err
	}
	for from := uint64(1); ; from++ {
		id, revision, err := stream.NextCancellation(ctx, s.config.JetStream.Conn(), from)
		if err != nil {
			return err
		}
		if id == "" {
			return request()
		}
		from = revision
		if ids = append(ids, id); len(ids) == cancelBatch {
			if err := request(); err != nil {
				return err
			}
		}
	}
}
