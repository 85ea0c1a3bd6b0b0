package operate

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/registry/edit"
)

const (
	defaultMaxBulkItems = 10_000
	maxBulkIDs          = 10_000 // maximum number of IDs in a request that selects by IDs

	bulkBatchSize = 500 // maximum number of records in one batch
	bulkWorkers   = 16  // maximum number of requests read concurrently
)

// bulkRestart restarts many executions, each of them only once: the ID of the new execution is
// derived from the original's ID, and also serves as the start message's Nats-Msg-Id, by which NATS
// discards duplicates. Callers can therefore repeat an interrupted call, or run several at once.
type bulkRestart struct {
	service  *Service
	caller   Caller
	deadline time.Time                                 // no batch begins after it
	newStart func(record store.Record) execution.Start // returns the new start message for a record
	// marksRequeued reports whether the originals are marked as requeued. If so, restartedCount is
	// the number of originals that this call marked; otherwise, it is the number of start messages
	// that this call stored.
	marksRequeued bool

	oldestSequences map[string]uint64 // oldest stream sequence by queue; 0 if it is not known

	restartedCount int  // number of restarted executions: see marksRequeued
	mayHaveMore    bool // whether more executions may match

	mu             sync.Mutex
	triggerLookups map[[2]string]func() (*edit.TriggerInfo, error)
	// skippedByCode counts the skipped executions by error code.
	skippedByCode map[string]int
}

func (s *Service) newBulkRestart(
	caller Caller, startFor func(record store.Record) execution.Start,
) *bulkRestart {
	return &bulkRestart{
		service: s, caller: caller, deadline: time.Now().Add(bulkTimeout - lastBatchTimeReserve),
		newStart:        startFor,
		oldestSequences: map[string]uint64{},
		triggerLookups:  map[[2]string]func() (*edit.TriggerInfo, error){},
		skippedByCode:   map[string]int{},
	}
}

// limitReached reports whether the call has restarted its maximum number of executions, or has no
// time left for another batch. It also stores the result in mayHaveMore, for the response.
func (b *bulkRestart) limitReached() bool {
	b.mayHaveMore = b.restartedCount >= b.service.config.MaxBulkItems ||
		time.Now().After(b.deadline)
	return b.mayHaveMore
}

// restartMatching restarts the records that match a filter, oldest first. It skips executions that
// were accepted after the call began. Otherwise, the call would never end if the new executions
// also failed immediately.
func (b *bulkRestart) restartMatching(ctx context.Context, filter store.RecordFilter) error {
	if now := time.Now(); filter.Until.IsZero() || filter.Until.After(now) {
		filter.Until = now
	}
	after := store.RecordPosition{}
	for !b.limitReached() {
		limit := min(bulkBatchSize, b.service.config.MaxBulkItems-b.restartedCount)
		found, err := b.service.config.Store.ListOldest(ctx, filter, after, limit)
		if err != nil {
			return err
		}
		if err := b.restartBatch(ctx, found); err != nil {
			return err
		}
		if len(found) < limit {
			return nil
		}
		last := found[len(found)-1]
		after = store.RecordPosition{AcceptedAt: last.AcceptedAt, ID: last.ID}
	}
	return nil
}

// restartBatch starts a new execution for each record. If the bulk call is a requeue, restartBatch
// also marks the originals as requeued before it returns.
func (b *bulkRestart) restartBatch(ctx context.Context, records []store.Record) error {
	starts := make([]execution.Start, len(records))
	ids := make([]string, len(records))
	for i, r := range records {
		starts[i] = b.newStart(r)
		ids[i] = starts[i].ID
	}
	// Ask the database which of the new executions already exist, because the stream recognizes
	// duplicates only within the deduplication window.
	before, err := b.service.config.Store.GetMany(ctx, ids)
	if err != nil {
		return err
	}
	known := make(map[string]bool, len(before))
	for _, r := range before {
		known[r.ID] = true
	}
	var mark []store.Requeue
	stored := 0
	for chunk := range slices.Chunk(allIndexes(records), bulkWorkers) {
		if err = b.restartInOrder(ctx, chunk, records, known, starts, func(i int, fresh bool) {
			if fresh {
				stored++
			}
			mark = append(mark, store.Requeue{ID: records[i].ID, ReplacementID: ids[i]})
		}); err != nil {
			break
		}
	}
	if !b.marksRequeued {
		b.restartedCount += stored
		return err
	}
	marked, markErr := b.service.config.Store.MarkRequeued(ctx, mark)
	b.restartedCount += len(marked)
	// Ignore the error: a watcher that misses this notification sees the change at its next query.
	_ = b.service.config.Changes.Publish(marked)
	return errors.Join(err, markErr)
}

func allIndexes(records []store.Record) []int {
	all := make([]int, len(records))
	for i := range all {
		all[i] = i
	}
	return all
}

// restartInOrder restarts the records whose indexes are in chunk. It reads their requests
// concurrently, and then starts the new executions one by one, in the order of the records.
//
// starts holds a start message for each record, still without the request. known is the set of the
// IDs of new executions that already exist; restartInOrder does not start these again. For each
// record whose new execution exists in the end, restartInOrder calls onStarted with the record's
// index i. fresh reports whether this call started the execution.
func (b *bulkRestart) restartInOrder(
	ctx context.Context, chunk []int, records []store.Record, known map[string]bool,
	starts []execution.Start, onStarted func(i int, fresh bool),
) error {
	triggers, failures := make([]*edit.TriggerInfo, len(chunk)), make([]error, len(chunk))
	var reading errgroup.Group
	for n, i := range chunk {
		if known[starts[i].ID] {
			continue
		}
		if b.hasExpired(ctx, records[i]) {
			failures[n] = &Error{Code: api.CodeInputExpired}
			continue
		}
		reading.Go(func() error {
			triggers[n], failures[n] = b.service.prepareRestart(ctx, b.caller, records[i],
				&starts[i], b.cachedTriggerOf)
			return nil
		})
	}
	_ = reading.Wait()
	for n, i := range chunk {
		fresh, err := false, failures[n]
		if err == nil && triggers[n] != nil {
			fresh, err = b.service.publishStart(ctx, triggers[n], starts[i], true)
		}
		starts[i] = execution.Start{} // release the body, which may be large
		if err == nil {
			onStarted(i, fresh)
		} else if err = b.countIfSkippable(err); err != nil {
			return err
		}
	}
	return nil
}

// hasExpired reports whether an execution's start message is certainly no longer in the streams. It
// looks up the oldest sequence of each queue only once. Without this check, a bulk call, which
// begins with the oldest executions, could spend all its time on failing reads of expired messages.
func (b *bulkRestart) hasExpired(ctx context.Context, record store.Record) bool {
	oldest, known := b.oldestSequences[record.Queue]
	if !known {
		// If a stream does not respond, the oldest sequence is 0, so no message counts as expired.
		oldest, _ = b.service.startStreams.OldestSequence(ctx, record.Queue)
		b.oldestSequences[record.Queue] = oldest
	}
	return record.StreamSequence < oldest
}

// countIfSkippable counts an execution that cannot be restarted because of err, and returns nil. If
// err may affect other executions as well, countIfSkippable counts nothing and returns err.
func (b *bulkRestart) countIfSkippable(err error) error {
	failure, ok := errors.AsType[*Error](err)
	if !ok ||
		!slices.Contains([]string{
			api.CodeInputExpired, api.CodeBodyNotKept, api.CodeNotFound, api.CodeUndecodable,
			api.CodeRefused,
		}, failure.Code) {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.skippedByCode[failure.Code]++
	return nil
}

// skippedCounts returns how many executions were skipped, by error code, sorted by code.
func (b *bulkRestart) skippedCounts() []api.Left {
	var all []api.Left
	for _, code := range slices.Sorted(maps.Keys(b.skippedByCode)) {
		all = append(all, api.Left{Code: code, Count: b.skippedByCode[code]})
	}
	return all
}

// cachedTriggerOf is like Service.triggerOf, but looks up each trigger node only once.
func (b *bulkRestart) cachedTriggerOf(
	ctx context.Context, caller Caller, workflowID, nodeID string,
) (*edit.TriggerInfo, error) {
	b.mu.Lock()
	find := b.triggerLookups[[2]string{workflowID, nodeID}]
	if find == nil {
		find = sync.OnceValues(func() (*edit.TriggerInfo, error) {
			return b.service.triggerOf(ctx, caller, workflowID, nodeID)
		})
		b.triggerLookups[[2]string{workflowID, nodeID}] = find
	}
	b.mu.Unlock()
	return find()
}
