// Package report counts the requests that the ingress suppressed as repeats, refused, filtered out
// or verified, and sends the counts to the executors in batches. Counting never waits for NATS:
// while NATS is unreachable, counts accumulate in memory, within bounds.
package report

import (
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/shared/stream"
)

// duplicateReportInterval is the interval between reports of duplicate requests.
const duplicateReportInterval = 200 * time.Millisecond

// maxExecutionsWithDuplicates is the maximum number of executions whose repeats are counted, which
// bounds memory use. Repeats of further executions are not counted until the next report has been
// sent.
const maxExecutionsWithDuplicates = 10_000

// DuplicateCounter counts suppressed repeats by execution. It is safe for concurrent use.
type DuplicateCounter struct {
	reporter

	mu     sync.Mutex
	counts map[string]int64 // suppressed repeats, by execution ID
}

// NewDuplicateCounter returns a DuplicateCounter. It sends reports only while Run is running.
func NewDuplicateCounter(js jetstream.JetStream, log logrus.FieldLogger) *DuplicateCounter {
	d := &DuplicateCounter{counts: map[string]int64{}}
	d.reporter = newReporter(
		js,
		log,
		"suppressed repeats",
		duplicateReportInterval,
		d.drainToMessage,
	)
	return d
}

// Count counts one suppressed repeat of the delivery that started the execution with the given ID.
func (d *DuplicateCounter) Count(executionID string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.counts[executionID]; ok || len(d.counts) < maxExecutionsWithDuplicates {
		d.counts[executionID]++
	}
}

func (d *DuplicateCounter) drainToMessage() (*nats.Msg, error) {
	counts := d.drainCounts()
	if len(counts) == 0 {
		return nil, nil //nolint:nilnil // nothing to say is no error
	}
	return stream.DuplicatesMessage(uuid.NewString(), time.Now(), counts)
}

// drainCounts returns the counts and resets them. It returns nil if there are none.
func (d *DuplicateCounter) drainCounts() map[string]int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.counts) == 0 {
		return nil
	}
	counts := d.counts
	d.counts = map[string]int64{}
	return counts
}
