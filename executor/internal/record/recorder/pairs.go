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

// streamPair holds the names of a stream of start messages and of the stream with the runners'
// reports about them.
type streamPair struct{ starts, progress string }

// sharedStreamPair is the pair of streams that is shared by all queues without streams of
// their own.
var sharedStreamPair = streamPair{stream.ExecutionsName, stream.ProgressName}

func ownStreamPair(queue string) streamPair {
	return streamPair{stream.OwnStreamName(queue), stream.OwnProgressStreamName(queue)}
}

// pairOfStream returns the pair to which a stream of start messages or of reports belongs.
func pairOfStream(name string) streamPair {
	if queue, ok := stream.QueueOfOwnStream(name); ok {
		return ownStreamPair(queue)
	}
	if queue, ok := stream.QueueOfOwnProgressStream(name); ok {
		return ownStreamPair(queue)
	}
	return sharedStreamPair
}

// streamNames returns the names of both streams of the pair.
func (p streamPair) streamNames() []string { return []string{p.starts, p.progress} }

// existingStreams returns the names of the existing streams of start messages and of reports.
func (r *Recorder) existingStreams(ctx context.Context) (names []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, natsRequestTimeout)
	defer cancel()
	starts, reports, err := stream.StreamNames(ctx, r.js)
	return append(starts, reports...), err
}

// existingPairs returns the existing pairs of streams, the shared one first.
func (r *Recorder) existingPairs(ctx context.Context) ([]streamPair, error) {
	names, err := r.existingStreams(ctx)
	if err != nil {
		return nil, err
	}
	all := []streamPair{sharedStreamPair}
	for _, name := range names {
		if p := pairOfStream(name); !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	slices.SortFunc(
		all[1:],
		func(a, b streamPair) int { return strings.Compare(a.starts, b.starts) },
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

// startBacklogs holds, for each stream of start messages, the number of messages waiting in it,
// as last reported by the server. It is safe for concurrent use.
type startBacklogs struct {
	mu       sync.Mutex
	byStream map[string]uint64 // keyed by stream name
}

func (b *startBacklogs) Store(starts string, n uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byStream == nil {
		b.byStream = map[string]uint64{}
	}
	b.byStream[starts] = n
}

func (b *startBacklogs) Load(starts string) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.byStream[starts]
}

func (b *startBacklogs) Delete(starts string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.byStream, starts)
}

// largestOwnBacklog returns the largest number of start messages waiting in any queue's own stream.
func (b *startBacklogs) largestOwnBacklog() (n uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for starts, waiting := range b.byStream {
		if starts != sharedStreamPair.starts {
			n = max(n, waiting)
		}
	}
	return n
}
