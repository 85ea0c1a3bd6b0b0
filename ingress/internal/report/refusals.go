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

// refusalReportInterval is the interval between reports of refusals.
const refusalReportInterval = time.Second

// maxRefusalCounters is the maximum number of counters, which bounds memory use and the size of a
// report. Once that many counters exist, a refusal that would need a new one is counted by code
// only.
const maxRefusalCounters = 2000

// RefusalCounter counts refused requests by workflow, code and minute. It is safe for concurrent
// use.
type RefusalCounter struct {
	reporter

	mu      sync.Mutex
	entries map[refusalKey]*refusalEntry
}

type refusalKey struct {
	workflowID string
	code       string
	minute     int64 // minutes since 1970; 0 means the minute of the report
}

type refusalEntry struct {
	count int64
	last  stream.RefusedRequest
}

// NewRefusalCounter returns a RefusalCounter. It sends reports only while Run is running.
func NewRefusalCounter(js jetstream.JetStream, log logrus.FieldLogger) *RefusalCounter {
	r := &RefusalCounter{entries: map[refusalKey]*refusalEntry{}}
	r.reporter = newReporter(js, log, "refusals", refusalReportInterval, r.drainToMessage)
	return r
}

// Count counts one refusal. workflowID must be "" unless the workflow exists. Otherwise, anybody
// could make the ingress create counters for arbitrary IDs.
func (r *RefusalCounter) Count(workflowID, code string, request stream.RefusedRequest) {
	key := refusalKey{workflowID, code, request.At.Unix() / 60}
	r.mu.Lock()
	defer r.mu.Unlock()
	entry := r.entries[key]
	if entry == nil && len(r.entries) >= maxRefusalCounters {
		key = refusalKey{code: code} // there is only one such key per code
		entry = r.entries[key]
	}
	if entry == nil {
		entry = &refusalEntry{}
		r.entries[key] = entry
	}
	entry.count++
	entry.last = request
}

func (r *RefusalCounter) drainToMessage() (*nats.Msg, error) {
	r.mu.Lock()
	entries := r.entries
	if len(entries) == 0 {
		r.mu.Unlock()
		return nil, nil //nolint:nilnil // nothing to say is no error
	}
	r.entries = map[refusalKey]*refusalEntry{}
	r.mu.Unlock()

	now := time.Now()
	counts := make([]stream.RefusalCount, 0, len(entries))
	for key, entry := range entries {
		minute := time.Unix(key.minute*60, 0)
		if key.minute == 0 {
			minute = now.Truncate(time.Minute)
		}
		counts = append(counts, stream.RefusalCount{
			WorkflowID: key.workflowID,
			Code:       key.code,
			Minute:     minute,
			Count:      entry.count,
			Last:       entry.last,
		})
	}
	return stream.RefusalsMessage(uuid.NewString(), now, counts)
}
