package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/audit"
	"github.com/hookstart/hookstart/executor/internal/operators/queues"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/stream"
)

// An execution is canceled in three steps, so that all readers see the same final state, even if
// processes crash in between:
//
//  1. The database records that cancellation was requested, in one transaction with the audit
//     entry. From then on the request is durable: if this process ends, RunCancellationRecovery
//     repeats the remaining steps.
//  2. The execution's ID is put as a key into the cancellations bucket. Runners look for the key
//     after a message arrives, before its handler begins, and while the handler runs: see package
//     runner.
//  3. The NATS server reports whether any group of runners has received the message. If none has,
//     every group that receives it later finds the key, so no handler ever begins: the database
//     sets the record to canceled if it is still queued. Otherwise the runner ends the execution:
//     it reports CANCELED, or the final state that its handler reached.
//
// The database decides the final state: the first one that a transaction writes stays, and later
// ones change nothing. A cancellation that races with the end of the execution therefore has the
// same outcome for every reader. If a report was stored before the cancellation but is not recorded
// yet, a runner has received the message, so step 3 does not touch the record. A redelivered
// message finds the key, which is kept as long as messages are. A requeue or a replay is a
// different execution with a different ID, and can begin only after this one has ended.

const (
	// cancelCompletionInterval is the interval at which RunCancellationRecovery looks for
	// incomplete cancellations.
	cancelCompletionInterval = 5 * time.Second
	// cancelBatchSize is the maximum number of executions canceled together.
	cancelBatchSize = 500
	// maxConcurrentCancelPuts is the maximum number of concurrent writes to the cancellations
	// bucket.
	maxConcurrentCancelPuts = 32
)

// CancelExecution cancels an execution. If no runner has received the execution, it is canceled
// when CancelExecution returns. Otherwise, its runner ends it later, and until then the call may be
// repeated. CancelExecution returns an error if the execution has already ended, even if the reason
// was an earlier cancellation.
func (s *Service) CancelExecution(
	ctx context.Context, caller Caller, id string,
) (Execution, error) {
	r := newAccessRule("CancelExecution", accessToExecution(id))
	return runChange(ctx, s, caller, r, 2*readTimeout, func(
		ctx context.Context,
	) (none Execution, err error) {
		record, err := s.record(ctx, id)
		if err != nil {
			return none, err
		}
		if record.Status.Final() {
			return none, alreadyEndedError(record)
		}
		if _, _, err := s.cancel(ctx, []store.Record{record}, s.cancelAuditEntryFunc(ctx,
			[]store.Record{
				record,
			})); err != nil {
			return none, err
		}
		if record, err = s.record(ctx, id); err != nil {
			return none, err
		}
		if record.CancelRequestedAt.IsZero() {
			return none, alreadyEndedError(record) // it ended before the request was stored
		}
		return executionOf(record), nil
	})
}

func alreadyEndedError(r store.Record) error {
	return &Error{
		Code:   api.CodeAlreadyEnded,
		Detail: fmt.Sprintf("The execution is %s: it has ended.", r.Status),
	}
}

// CancelSelection selects executions by IDs if IDs is not nil, and by Filter otherwise. If Filter
// is used, it must name a workflow, and its Status must be queued, running, or "", which means
// both.
type CancelSelection struct {
	IDs    []string
	Filter ExecutionFilter
}

func (c CancelSelection) check() error {
	switch f := c.Filter; {
	case len(c.IDs) > maxBulkIDs:
		return &edit.InvalidFieldError{
			Field:   "ids",
			Problem: fmt.Sprintf("must be at most %d", maxBulkIDs),
		}
	case c.IDs != nil &&
		(f.WorkflowID != "" || f.Status != "" || !f.Since.IsZero() || !f.Until.IsZero()):
		return &edit.InvalidFieldError{
			Field:   "ids",
			Problem: "must not be combined with workflowId, status, since or until",
		}
	case c.IDs == nil && f.WorkflowID == "":
		return &edit.InvalidFieldError{
			Field:   "workflowId",
			Problem: "is required, unless ids are given",
		}
	}
	return nil
}

// CancelExecutions cancels executions that have not ended. With a filter, it cancels the oldest
// executions first, and at most Config.MaxBulkItems of them. It is idempotent.
func (s *Service) CancelExecutions(
	ctx context.Context, caller Caller, selected CancelSelection,
) (api.Canceled, error) {
	return runChange(ctx, s, caller,
		newAccessRule("CancelExecutions", narrowToCallerAccount(&selected.Filter.AccountID)),
		bulkTimeout,
		func(ctx context.Context) (done api.Canceled, err error) {
			if err := selected.check(); err != nil {
				return done, err
			}
			until := time.Now().Add(bulkTimeout - lastBatchTimeReserve)
			count := func(records []store.Record) error {
				records = slices.DeleteFunc(records, func(r store.Record) bool {
					return r.Status.Final() || !r.CancelRequestedAt.IsZero() ||
						selected.Filter.AccountID != "" && r.AccountID != selected.Filter.AccountID
				})
				canceled, requested, err := s.cancel(ctx, records, s.cancelAuditEntryFunc(ctx,
					records))
				done.Canceled, done.Requested = done.Canceled+canceled, done.Requested+requested
				return err
			}
			if selected.IDs != nil {
				for ids := range slices.Chunk(selected.IDs, cancelBatchSize) {
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
			statuses := []execution.Status{execution.Queued, execution.Running}
			if selected.Filter.Status != "" {
				statuses = []execution.Status{selected.Filter.Status}
			}
			for _, selected.Filter.Status = range statuses {
				var after store.RecordPosition
				for {
					left := s.config.MaxBulkItems - done.Canceled - done.Requested
					if done.More = left <= 0 || time.Now().After(until); done.More {
						return done, nil
					}
					limit := min(cancelBatchSize, left)
					records, err := s.config.Store.ListOldest(ctx, selected.Filter, after, limit)
					if err != nil {
						return done, err
					}
					last := len(records) < limit
					if len(records) > 0 {
						after = store.RecordPosition{
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

// cancelAuditEntryFunc returns a function that creates the audit entry for the record with a given
// ID.
func (s *Service) cancelAuditEntryFunc(
	ctx context.Context, records []store.Record,
) func(id string) store.AuditEntry {
	about, actor, now := map[string]store.Record{}, edit.ActorOf(ctx), time.Now()
	for _, r := range records {
		about[r.ID] = r
	}
	return func(id string) store.AuditEntry {
		return audit.NewCancelEntry(id, now, actor, about[id])
	}
}

// cancel performs the three steps of a cancellation, described at the top of this file, for the
// given records. The results do not count executions whose cancellation was requested before.
// canceled is the number of executions that are canceled when cancel returns. requested is the
// number of executions that a runner still has to end.
func (s *Service) cancel(
	ctx context.Context, records []store.Record, newAuditEntry func(id string) store.AuditEntry,
) (canceled, requested int, err error) {
	if len(records) == 0 {
		return 0, 0, nil
	}
	newlyRequested, err := s.config.Store.RequestCancel(
		ctx, idsOf(records), time.Now(), newAuditEntry)
	if err != nil {
		return 0, 0, err
	}
	ended, err := s.finishCancel(ctx, records)
	// Ignore the error: a watcher that misses this notification sees the change at its next query.
	_ = s.config.Changes.Publish(slices.Concat(newlyRequested, ended))
	if err != nil {
		return 0, 0, err
	}
	others := slices.DeleteFunc(slices.Clone(newlyRequested), func(id string) bool {
		return slices.Contains(ended, id)
	})
	canceled = len(newlyRequested) - len(others)
	if len(others) == 0 {
		return canceled, 0, nil
	}
	now, err := s.config.Store.GetMany(ctx, others)
	for _, r := range now {
		if r.Status == execution.Canceled {
			canceled++
		}
	}
	return canceled, len(newlyRequested) - canceled, err
}

func idsOf(records []store.Record) []string {
	ids := make([]string, len(records))
	for i, r := range records {
		ids[i] = r.ID
	}
	return ids
}

// finishCancel performs the second and third step of a cancellation for the given records, and
// returns the IDs of the records that it ended. If it cannot read the streams of some records, it
// still ends the others, and returns an error as well.
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
	starts, unread := s.config.Queues.StartMessages(ctx, records)
	var waiting []string
	for _, r := range records {
		if start := starts[r.ID]; start != nil && !start.Delivered {
			waiting = append(waiting, r.ID)
		}
	}
	now := time.Now()
	ended, err = s.config.Store.Cancel(ctx, waiting, now)
	s.reportCanceled(ctx, records, ended, starts, now)
	return ended, errors.Join(unread, err)
}

// reportCanceled publishes the status CANCELED of executions that no runner has received. An
// ingress that delays its response until the execution ends waits for this report. If the report is
// lost, the ingress responds that the execution is still queued. If the start message is in the
// queue's own stream, the report goes to the queue's own stream for reports, and otherwise to the
// shared one. The report belongs to the trace of the start if the start message was read, and
// otherwise to a trace of its own.
func (s *Service) reportCanceled(
	ctx context.Context, records []store.Record, ended []string,
	starts map[string]*queues.StartMessage, at time.Time,
) {
	for _, r := range records {
		if !slices.Contains(ended, r.ID) {
			continue
		}
		start := starts[r.ID]
		layout, _ := stream.LayoutOf(start.Subject)
		traceparent, end := start.Traceparent, func(error) {}
		if traceparent == "" {
			traceparent, end = s.startTrace(ctx,
				layout.ProgressSubject(r.Queue, r.WorkflowID, r.ID), r.ID)
		}
		msg, err := layout.ProgressMessage(r.Queue, r.WorkflowID, r.NodeID, traceparent,
			execution.Progress{ID: r.ID, Status: execution.Canceled, At: at})
		if err == nil {
			err = s.config.JetStream.Conn().PublishMsg(msg)
		}
		end(err)
	}
}

func putCancellations(ctx context.Context, bucket jetstream.KeyValue, ids []string) error {
	failures := make(chan error, len(ids))
	slots := make(chan struct{}, maxConcurrentCancelPuts)
	for _, id := range ids {
		slots <- struct{}{}
		go func() {
			failures <- stream.PutCancellation(ctx, bucket, id, time.Now())
			<-slots
		}()
	}
	var failed error
	for range ids {
		failed = errors.Join(failed, <-failures)
	}
	return failed
}

// RunCancellationRecovery completes interrupted cancellations until the context is done. A
// cancellation may be interrupted because its process has ended, or because the database or the
// bucket was restored from an older copy. It does not restore the bucket's keys of executions that
// were accepted longer ago than maxAge, the time for which streams keep messages, because the start
// messages of these executions are gone.
func RunCancellationRecovery(ctx context.Context, s *Service, maxAge time.Duration) {
	conn := s.config.JetStream.Conn()
	connected := conn.StatusChanged(nats.CONNECTED)
	defer conn.RemoveStatusListener(connected)
	tick := time.NewTicker(cancelCompletionInterval)
	defer tick.Stop()
	var reconciled bucketState
	for ctx.Err() == nil {
		now, err := s.cancellationsBucketState(ctx)
		if err == nil && now.mayLackKeysOf(reconciled) {
			err = s.reconcileCancellations(ctx, maxAge)
		}
		if err == nil {
			reconciled = now
		}
		_ = s.forEachBatch(ctx, store.RecordFilter{OnlyCanceling: true},
			func(records []store.Record) error {
				ended, err := s.finishCancel(ctx, records)
				_ = s.config.Changes.Publish(ended)
				if conn.IsConnected() && ctx.Err() == nil {
					return nil // continue: the streams of the later records may respond
				}
				return err
			}) // ignore the error: the next iteration retries what failed
		select {
		case <-ctx.Done():
		case <-connected:
		case <-tick.C:
		}
	}
}

// bucketState describes the state of the cancellations bucket at some time, so that a later
// state reveals whether keys may have been lost. The zero value stands for a bucket that was never
// seen.
type bucketState struct {
	created    time.Time // when the bucket was created
	revision   uint64    // its newest revision
	reconnects uint64    // number of reconnects to NATS until then
}

// mayLackKeysOf reports whether the bucket may have lost keys that it had in an earlier state. A
// lower revision proves that it has. An equal or higher revision proves nothing, because new keys
// may have replaced the lost ones. A reconnect therefore counts as a possible loss: a NATS server
// that loses its newest writes in a power failure also loses its connections.
func (s bucketState) mayLackKeysOf(earlier bucketState) bool {
	return !s.created.Equal(earlier.created) || s.revision < earlier.revision ||
		s.reconnects != earlier.reconnects
}

// cancellationsBucketState returns the current state of the cancellations bucket.
func (s *Service) cancellationsBucketState(ctx context.Context) (bucketState, error) {
	reconnects := s.config.JetStream.Conn().Stats().Reconnects
	bucket, err := s.config.JetStream.Stream(ctx, stream.CancellationsStream)
	if err != nil {
		return bucketState{}, err
	}
	info := bucket.CachedInfo()
	return bucketState{info.Created, info.State.LastSeq, reconnects}, nil
}

// forEachBatch calls the function do with batches of the records that match a filter, oldest first.
// It stops if do returns an error.
func (s *Service) forEachBatch(
	ctx context.Context, filter store.RecordFilter, do func([]store.Record) error,
) error {
	var after store.RecordPosition
	for {
		records, err := s.config.Store.ListOldest(ctx, filter, after, cancelBatchSize)
		if err != nil || len(records) == 0 {
			return err
		}
		after = store.RecordPosition{
			AcceptedAt: records[len(records)-1].AcceptedAt,
			ID:         records[len(records)-1].ID,
		}
		if err := do(records); err != nil || len(records) < cancelBatchSize {
			return err
		}
	}
}

// reconcileCancellations makes the database and the bucket agree after a power failure or a restore
// has rolled one of them back. It puts the missing keys of canceled executions into the bucket, and
// requests the cancellation of executions for which the bucket has a key but the database has no
// request.
func (s *Service) reconcileCancellations(ctx context.Context, maxAge time.Duration) error {
	bucket, err := s.config.JetStream.KeyValue(ctx, stream.CancellationsBucket)
	if err != nil {
		return err
	}
	if err := s.forEachBatch(ctx, store.RecordFilter{
		Status: execution.Canceled,
		Since:  time.Now().Add(-maxAge),
	}, func(records []store.Record) error {
		return putCancellations(ctx, bucket, idsOf(records))
	}); err != nil {
		return err
	}
	var ids []string
	request := func() error {
		// Write no audit entry, because the original request has written one.
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
		if ids = append(ids, id); len(ids) == cancelBatchSize {
			if err := request(); err != nil {
				return err
			}
		}
	}
}
