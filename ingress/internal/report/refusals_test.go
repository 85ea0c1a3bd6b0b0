package report_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/ingress/internal/report"
	"github.com/hookstart/hookstart/shared/bus"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/ops/logtest"
	"github.com/hookstart/hookstart/shared/stream"
)

type rig struct {
	t    testing.TB
	nats *natstest.Node
	js   jetstream.JetStream
	log  *logrus.Logger
}

// start starts NATS, and connects to it with the options that an ingress uses.
func start(t testing.TB) *rig {
	t.Helper()
	r := &rig{t: t, nats: natstest.Start(t), log: logtest.Discard()}
	nc, err := bus.Connect(t.Context(), bus.Options{
		URL:            r.nats.URL(),
		ConnectTimeout: 20 * time.Second,
		Log:            r.log,
	})
	r.check(err)
	t.Cleanup(nc.Close)
	r.js, err = jetstream.New(nc)
	r.check(err)
	r.check(stream.EnsureReportsStream(t.Context(), r.js, 1))
	return r
}

// run runs a counter in the background. stop ends it, and returns after the counter has sent its
// last report.
func (r *rig) run(run func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(r.t.Context())
	var running sync.WaitGroup
	running.Go(func() { run(ctx) })
	return func() { cancel(); running.Wait() }
}

func (r *rig) check(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// reported reads reports until they contain at least want refusals in total, and returns the counts
// in these reports.
func (r *rig) reported(want int64) []stream.RefusalCount {
	r.t.Helper()
	js, err := jetstream.New(r.nats.Connect(r.t)) // a separate connection that has never been lost
	r.check(err)
	consumer, err := js.OrderedConsumer(r.t.Context(), stream.ReportsName,
		jetstream.OrderedConsumerConfig{FilterSubjects: []string{stream.RefusalsSubject}})
	r.check(err)
	var all []stream.RefusalCount
	for total := int64(0); total < want; {
		msg, err := consumer.Next(jetstream.FetchMaxWait(20 * time.Second))
		r.check(err)
		_, _, counts, err := stream.DecodeRefusals(msg.Data())
		r.check(err)
		for _, c := range counts {
			total += c.Count
		}
		if all = append(all, counts...); total > want {
			r.t.Fatalf("%d refusals, want %d: %+v", total, want, all)
		}
	}
	return all
}

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func request(second int) stream.RefusedRequest {
	return stream.RefusedRequest{
		At:        noon.Add(time.Duration(second) * time.Second),
		BodyBytes: int64(second),
		UserAgent: "test",
	}
}

func TestRefusalsByWorkflowCodeAndMinute(t *testing.T) {
	r := start(t)
	refusals := report.NewRefusalCounter(r.js, r.log)
	stop := r.run(refusals.Run)
	for second := range 90 {
		refusals.Count("a", "token_invalid", request(second))
	}
	refusals.Count("a", "json_invalid", request(5))
	refusals.Count("", "token_invalid", request(6))
	stop()
	got := map[string]stream.RefusalCount{}
	for _, c := range r.reported(92) {
		key := fmt.Sprint(c.WorkflowID, " ", c.Code, " ", c.Minute.Minute())
		c.Count += got[key].Count // a report may have been sent meanwhile
		got[key] = c
	}
	for key, want := range map[string]stream.RefusalCount{
		"a token_invalid 0": {Count: 60, Last: request(59)},
		"a token_invalid 1": {Count: 30, Last: request(89)},
		"a json_invalid 0":  {Count: 1, Last: request(5)},
		" token_invalid 0":  {Count: 1, Last: request(6)},
	} {
		if g := got[key]; g.Count != want.Count || g.Last != want.Last {
			t.Errorf("%s: %+v, want %+v", key, g, want)
		}
	}
	if len(got) != 4 {
		t.Errorf("%+v", got)
	}
}

// While NATS is unreachable, refusals are counted without delay and with bounded memory. After the
// reconnect, no refusal has been lost or counted twice.
func TestRefusalsWhileNATSIsAway(t *testing.T) {
	r := start(t)
	refusals := report.NewRefusalCounter(r.js, r.log)
	stop := r.run(refusals.Run)
	refusals.Count("before", "token_invalid", request(0))
	r.reported(1)
	r.nats.Stop()

	const many = 50_000
	workflow := strings.Repeat("x", 56)
	for i := range many {
		refusals.Count(fmt.Sprintf("%s%08d", workflow, i), "token_invalid", stream.RefusedRequest{
			At:        noon,
			UserAgent: strings.Repeat("u", stream.MaxUserAgentBytes),
		})
	}
	refusals.Count("late", "json_invalid", request(0))
	r.nats.Restart()
	named, unnamed := 0, int64(0)
	for _, c := range r.reported(1 + many + 1)[1:] {
		if c.WorkflowID == "" {
			unnamed += c.Count
		} else {
			named++
		}
	}
	stop()
	// Each report has at most 2,000 counters by workflow (maxRefusalCounters); further refusals are
	// counted by code alone. There may be two reports: one created just after NATS stopped, and one
	// created after NATS was back.
	if named < 2000 || named > 4001 || int64(named)+unnamed != many+1 {
		t.Errorf("%d were counted by workflow, %d by code alone", named, unnamed)
	}
}

func BenchmarkRefusals(b *testing.B) {
	r := start(b)
	refusals := report.NewRefusalCounter(r.js, r.log)
	stop := r.run(refusals.Run)
	defer stop()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			refusals.Count("workflow", "token_invalid", stream.RefusedRequest{
				At:        noon,
				UserAgent: "curl/8",
			})
		}
	})
}
