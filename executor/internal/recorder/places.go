package recorder

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/stream"
)

// A queue may have streams of its own. They are created and deleted while the recorder runs, so it
// asks the server for the streams that exist, at the interval watchEvery. The streams of different
// places are independent: each is compared with the database separately, and a place that cannot be
// reached, or that holds a lot, delays none of the others.

// place is a stream of starts, with the stream of reports about these starts.
type place struct{ starts, reports string }

// shared is the place of the queues that have no streams of their own.
var shared = place{stream.Name, stream.ProgressName}

func ownPlace(queue string) place {
	return place{stream.OwnName(queue), stream.OwnProgressName(queue)}
}

// placeOf returns the place of a stream of starts or of reports.
func placeOf(name string) place {
	if queue, ok := stream.QueueOfStream(name); ok {
		return ownPlace(queue)
	}
	if queue, ok := stream.QueueOfProgressStream(name); ok {
		return ownPlace(queue)
	}
	return shared
}

// names returns the names of both streams.
func (p place) names() []string { return []string{p.starts, p.reports} }

// existingStreams returns the names of the streams of starts and reports that exist now.
func (r *Recorder) existingStreams(ctx context.Context) (names []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	starts, reports, err := stream.Streams(ctx, r.js)
	return append(starts, reports...), err
}

// places returns the places that exist now. The shared place is the first.
func (r *Recorder) places(ctx context.Context) ([]place, error) {
	names, err := r.existingStreams(ctx)
	if err != nil {
		return nil, err
	}
	all := []place{shared}
	for _, name := range names {
		if p := placeOf(name); !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	slices.SortFunc(all[1:], func(a, b place) int { return strings.Compare(a.starts, b.starts) })
	return all, nil
}

// fetchAll fetches the messages of all streams until the context ends. It follows streams that are
// created and deleted.
func (r *Recorder) fetchAll(ctx context.Context, arrived *arrivals) {
	var fetching sync.WaitGroup
	defer fetching.Wait()
	running := map[string]context.CancelFunc{} // by stream
	follow := func(name string) {
		if running[name] != nil {
			return
		}
		following, stop := context.WithCancel(ctx)
		running[name] = stop
		r.streams.Add(1)
		fetching.Go(func() {
			defer r.streams.Add(-1)
			from := r.source(name)
			r.keepOn(following, "the recorder", func(ctx context.Context) error {
				return r.fetch(ctx, from, arrived)
			})
			if ctx.Err() == nil {
				r.forget(name)
			}
		})
	}
	defer func() {
		for _, stop := range running {
			stop()
		}
	}()
	for _, name := range shared.names() {
		follow(name)
	}
	for ctx.Err() == nil {
		// After an error, the recorder keeps following the streams that it knows.
		if names, err := r.existingStreams(ctx); err == nil {
			names = append(names, shared.names()...)
			for _, name := range names {
				follow(name)
			}
			for name, stop := range running {
				if !slices.Contains(names, name) {
					stop()
					delete(running, name)
				}
			}
		}
		retry.Sleep(ctx, r.watchEvery)
	}
}

// forget removes the state of a stream that was deleted.
func (r *Recorder) forget(name string) {
	r.metrics.forget(name)
	r.marks.forget(name)
	r.recovery.forget(name)
	r.startsWaiting.Delete(placeOf(name).starts)
}

// share returns the number of messages and bytes that one stream may add at once, so that all
// streams together add about maxBatch messages and maxBatchBytes for each of the shared streams.
func (r *Recorder) share() (messages, bytes int) {
	places := max(1, int(r.streams.Load())/2)
	return max(few, maxBatch/places), max(1<<20, maxBatchBytes/places)
}

// source returns the source of a stream's messages.
func (r *Recorder) source(name string) source {
	return source{stream: name, consumer: jetstream.ConsumerConfig{
		Durable:       Durable,
		Description:   "hookstart: the executors record every message",
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       r.deliverAgain,
		MaxAckPending: 10 * maxBatch,
		DeliverPolicy: jetstream.DeliverAllPolicy,
	}}
}

// waiting is the number of starts that wait in each place, as last reported by the server.
type waiting struct {
	mu sync.Mutex
	of map[string]uint64 // by the name of the stream of starts
}

func (w *waiting) Store(starts string, n uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.of == nil {
		w.of = map[string]uint64{}
	}
	w.of[starts] = n
}

func (w *waiting) Load(starts string) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.of[starts]
}

func (w *waiting) Delete(starts string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.of, starts)
}

// largest returns the largest number of starts that wait in an own stream.
func (w *waiting) largest() (n uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for starts, of := range w.of {
		if starts != shared.starts {
			n = max(n, of)
		}
	}
	return n
}
