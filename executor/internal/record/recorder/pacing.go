package recorder

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/retry"
)

// In a process that also has an ingress, the recorder lets the ingress finish responding to a burst
// of requests before it records the burst. Otherwise, every sender would have to wait, because
// recording a batch occupies a CPU for tens of milliseconds. maxRecordDelay limits the delay.
const (
	// busyRequestsPerCPU is the number of concurrent requests per CPU at which senders begin to
	// wait for a CPU. One request takes a fraction of a millisecond, so even at 5,000 requests per
	// second only one or two are in progress at a time.
	busyRequestsPerCPU = 4
	// quietPeriod is how long the number of requests must stay below the limit before the recorder
	// continues. It must not be too short: NATS acknowledges many requests together, so even during
	// a burst there are moments without any requests.
	quietPeriod       = 50 * time.Millisecond
	quietPollInterval = 2 * time.Millisecond
	// maxRecordDelay is the age at which a message is recorded even if the burst of requests
	// continues.
	maxRecordDelay = 2 * time.Second
)

// requestBurstGate makes the recorder wait while an ingress in this process responds to a burst of
// requests.
type requestBurstGate struct {
	publishing *atomic.Int64 // number of requests being stored; nil without an ingress
	quietFrom  time.Time     // quietPeriod after the last time with too many requests
}

// awaitQuiet waits until a burst of requests is over, the batch's first message is maxRecordDelay
// old, or the context is done.
func (g *requestBurstGate) awaitQuiet(ctx context.Context, first jetstream.Msg) {
	if g.publishing == nil {
		return
	}
	now := time.Now()
	end := now
	if meta, err := first.Metadata(); err == nil {
		// If the clock was set back, the message seems to be from the future. Its age then counts
		// as zero.
		end = now.Add(min(maxRecordDelay, maxRecordDelay-now.Sub(meta.Timestamp)))
	}
	for ; now.Before(end) && ctx.Err() == nil; now = time.Now() {
		if g.publishing.Load() >= int64(busyRequestsPerCPU*runtime.GOMAXPROCS(0)) {
			g.quietFrom = now.Add(quietPeriod)
		}
		if !now.Before(g.quietFrom) {
			return
		}
		retry.Sleep(ctx, quietPollInterval)
	}
}

const (
	// batchPauseRatio is the length of the pause after a batch, as a multiple of the batch's
	// duration, while no messages are waiting. With a ratio of 3, recording uses a quarter of one
	// core.
	batchPauseRatio = 3
	// maxPauseAfterBatch limits the pause. It is well below ackWait, so that messages are not
	// redelivered during the pause.
	maxPauseAfterBatch = 100 * time.Millisecond
	// noPauseBacklog is the number of waiting messages above which the recorder does not pause. The
	// pause gets shorter as the number approaches noPauseBacklog, so that the recorder keeps up
	// with a load that lasts longer than a burst.
	noPauseBacklog = 30_000
)

// pauseAfterBatch returns the pause after a batch that took the given time. waiting is the number
// of messages that are still waiting to be recorded.
func pauseAfterBatch(took time.Duration, waiting uint64) time.Duration {
	leisure := 1 - float64(min(waiting, noPauseBacklog))/noPauseBacklog
	return min(time.Duration(batchPauseRatio*leisure*float64(took)), maxPauseAfterBatch)
}

// messagesPerYield is the number of messages after which the recorder lets other goroutines run.
// Handling that many messages takes about 50 µs.
const messagesPerYield = 16

// yieldToOthers lets other goroutines run after every messagesPerYield messages; message is the
// index of a message in its batch. A batch occupies a P (a processor of the Go scheduler) for tens
// of milliseconds, and the scheduler preempts a goroutine only after 10 ms. Without yielding,
// goroutines of an ingress in this process would have to wait that long for the P.
func yieldToOthers(message int) {
	if message%messagesPerYield == messagesPerYield-1 {
		runtime.Gosched()
	}
}
