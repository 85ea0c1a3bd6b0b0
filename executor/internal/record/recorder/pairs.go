package recorder

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/hookstart/hookstart/shared/stream"
)

// Start messages and reports are stored in pairs of streams. One pair is shared, and a queue may
// have its own pair. Such pairs are created and deleted while the recorder runs, so it polls the
// server for the existing streams every consumerPollInterval. Pairs are independent: the recorder
// compares each one with the database separately, and a pair that is unreachable or holds many
// messages does not delay the others.

// startReportPair holds the names of a stream of start messages and of the stream with the runners'
// reports about them.
type startReportPair struct{ starts, reports string }

// sharedStartReportPair is the pair of streams that is shared by all queues without streams of
// their own.
var sharedStartReportPair = startReportPair{stream.ExecutionsName, stream.ProgressName}

func ownStartReportPair(queue string) startReportPair {
	return startReportPair{stream.OwnStreamName(queue), stream.OwnProgressStreamName(queue)}
}

// pairOfStream returns the pair to which a stream of start messages or of reports belongs.
func pairOfStream(name string) startReportPair {
	if queue, ok := stream.QueueOfStream(name); ok {
		return ownStartReportPair(queue)
	}
	if queue, ok := stream.QueueOfProgressStream(name); ok {
		return ownStartReportPair(queue)
	}
	return sharedStartReportPair
}

// streamNames returns the names of both streams of the pair.
func (p startReportPair) streamNames() []string { return []string{p.starts, p.reports} }

// existingStreams returns the names of the existing streams of start messages and of reports.
func (r *Recorder) existingStreams(ctx context.Context) (names []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, natsRequestTimeout)
	defer cancel()
	starts, reports, err := stream.StreamNames(ctx, r.js)
	return append(starts, reports...), err
}

// existingPairs returns the existing pairs of streams, the shared one first.
func (r *Recorder) existingPairs(ctx context.Context) ([]startReportPair, error) {
	names, err := r.existingStreams(ctx)
	if err != nil {
		return nil, err
	}
	all := []startReportPair{sharedStartReportPair}
	for _, name := range names {
		if p := pairOfStream(name); !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	slices.SortFunc(
		all[1:],
		func(a, b startReportPair) int { return strings.Compare(a.starts, b.starts) },
	)
	return all, nil
}

// forgetStream removes everything that the recorder remembers about a deleted stream.
func (r *Recorder) forgetStream(name string) {
	r.metrics.forgetStream(name)
	r.lastAcked.forgetStream(name)
	r.databaseRecovery.forgetStream(name)
	r.startBacklogs.Delete(pairOfStream(name).starts)
}

// maxFetchPerStream returns how many messages may be fetched from one stream at a time, and their
// maximum total size in bytes. It divides one batch (maxBatchMessages, maxBatchBytes) by the number
// of pairs, so that fetching once from all streams of start messages, or once from all streams of
// reports, yields about one batch.
func (r *Recorder) maxFetchPerStream() (messages, bytes int) {
	pairs := max(1, int(r.streamCount.Load())/2)
	return max(fetchSize, maxBatchMessages/pairs), max(1<<20, maxBatchBytes/pairs)
}

// undeliveredCounts holds, for each stream of start messages, the number of messages waiting in it,
// as last reported by the server. It is safe for concurrent use.
type undeliveredCounts struct {
	mu      sync.Mutex
	waiting map[string]uint64 // keyed by stream name
}

func (w *undeliveredCounts) Store(starts string, n uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting == nil {
		w.waiting = map[string]uint64{}
	}
	w.waiting[starts] = n
}

func (w *undeliveredCounts) Load(starts string) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.waiting[starts]
}

func (w *undeliveredCounts) Delete(starts string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.waiting, starts)
}

// largestOwnBacklog returns the largest number of start messages waiting in any queue's own stream.
func (w *undeliveredCounts) largestOwnBacklog() (n uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for starts, waiting := range w.waiting {
		if starts != sharedStartReportPair.starts {
			n = max(n, waiting)
		}
	}
	return n
}
