package recorder

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// The recorder waits until a burst of requests is over, but no longer than until the batch's first
// message is maxRecordDelay old.
func TestSendersPassFirst(t *testing.T) {
	t.Parallel()
	many := int64(busyRequestsPerCPU * runtime.GOMAXPROCS(0))
	const ending = -1 // the context is canceled
	type step struct {
		at         time.Duration
		publishing int64
	}
	for name, c := range map[string]struct {
		age         time.Duration // of the batch's first message
		burst       []step
		least, most time.Duration
	}{
		"few requests": {burst: []step{{0, many - 1}}},
		"a burst that ends": {
			burst: []step{{0, many}, {300 * time.Millisecond, 0}},
			least: 300 * time.Millisecond,
			most:  300*time.Millisecond + quietPeriod,
		},
		"one with gaps": {
			burst: []step{
				{0, many}, {100 * time.Millisecond, 0}, {120 * time.Millisecond, many}, {
					200 * time.Millisecond, 0,
				},
			},
			least: 200 * time.Millisecond,
			most:  200*time.Millisecond + quietPeriod,
		},
		"one without end": {burst: []step{{0, many}}, least: maxRecordDelay, most: maxRecordDelay},
		"a message that has waited": {
			age:   maxRecordDelay - time.Second,
			burst: []step{{0, many}},
			least: time.Second,
			most:  time.Second,
		},
		"one that has waited for long": {age: time.Hour, burst: []step{{0, many}}},
		"a clock that was set back": {
			age:   -time.Hour,
			burst: []step{{0, many}},
			least: maxRecordDelay,
			most:  maxRecordDelay,
		},
		"the process ends": {
			burst: []step{{0, many}, {100 * time.Millisecond, ending}},
			least: 100 * time.Millisecond,
			most:  100 * time.Millisecond,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, end := context.WithCancel(t.Context())
				defer end()
				s := requestBurstGate{publishing: new(atomic.Int64)}
				for _, step := range c.burst {
					do := func() { s.publishing.Store(step.publishing) }
					if step.publishing == ending {
						do = end
					}
					if step.at == 0 {
						do()
					} else {
						defer time.AfterFunc(step.at, do).Stop()
					}
				}
				began := time.Now()
				s.awaitQuiet(ctx, aged{at: began.Add(-c.age)})
				if took := time.Since(began); took < c.least || took > c.most+2*quietPollInterval {
					t.Errorf("it stepped aside for %s, want %s to %s", took, c.least, c.most)
				}
			})
		})
	}
}

// aged is a message with only metadata. Its field at is the time at which a stream stored it.
type aged struct {
	jetstream.Msg

	at time.Time
}

func (m aged) Metadata() (*jetstream.MsgMetadata, error) {
	return &jetstream.MsgMetadata{Timestamp: m.at}, nil
}
