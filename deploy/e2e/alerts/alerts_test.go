package alerts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/runner"
	"github.com/hookstart/hookstart/shared/stream"
)

// When all runners of a queue are killed, the console, the API, the metric and the alert QueueStuck
// report within a minute that no runner consumes from the queue. After a runner has joined again,
// all four return to normal by themselves. Prometheus scrapes and evaluates at the intervals of
// prometheus.yml.
func TestQueueStuck(t *testing.T) {
	t.Parallel()
	l := launchLocal(t)
	makeWorkflow(t, l.client, "stuck")
	p := newPrometheus(t, target{"executor", l.metrics}, target{"ingress", l.metrics})
	console := signIn(t, l)
	taken := func(want int) func() bool {
		return func() bool {
			q, members := l.queue(t, "stuck")
			return members == want && q.Waiting == 0 && q.OldestAcceptedAt.IsZero() &&
				!strings.Contains(console("/queues"), "Nobody takes it")
		}
	}
	one, two := launch(t, "stuck-runner", l.nats), launch(t, "stuck-runner", l.nats)
	one.Await("(ready)")
	two.Await("(ready)")
	tick := time.NewTicker(interval)
	defer tick.Stop()
	p.step(time.Now())
	within(t, 20*time.Second, "two members", taken(2))

	one.Kill()
	two.Kill()
	killed := time.Now()
	if _, err := l.client.RerunTrigger(t.Context(), "stuck", "node"); err != nil {
		t.Fatal(err)
	}
	await := func(what string, limit time.Duration, alerts ...string) time.Duration {
		t.Helper()
		for from := time.Now(); ; {
			at := <-tick.C
			p.step(at)
			if slices.Equal(p.firing(), alerts) {
				return time.Since(from)
			}
			if time.Since(from) > limit {
				t.Fatalf("%s: after %v %v fire, want %v", what, time.Since(from), p.firing(),
					alerts)
			}
		}
	}
	await("after the kill", time.Minute, "QueueStuck")
	t.Logf("QueueStuck fires %v after the kill", time.Since(killed).Round(time.Second))
	if q, members := l.queue(t, "stuck"); members != 0 || q.Waiting != 1 ||
		q.OldestAcceptedAt.IsZero() || len(q.Groups) != 1 || q.Groups[0].Waiting != 1 ||
		q.Groups[0].LastSeenAt.After(killed.Add(time.Second)) ||
		q.Groups[0].LastSeenAt.Before(killed.Add(-5*time.Second)) {
		t.Errorf("the API: %+v", q)
	}
	for path, want := range map[string]string{
		"/queues":          "Nobody takes it",
		"/workflows":       "No runner",
		"/workflows/stuck": "Nobody takes its queue",
	} {
		if page := console(path); !strings.Contains(page, want) {
			t.Errorf("%s does not say %q:\n%s", path, want, page)
		}
	}
	if time.Since(killed) > time.Minute {
		t.Errorf("it took %v", time.Since(killed))
	}

	launch(t, "stuck-runner", l.nats).Await("(ready)")
	took := await("with a runner again", time.Minute)
	t.Logf("it stops %v after a runner is there again", took.Round(time.Second))
	within(t, 20*time.Second, "member", taken(1))
	if page := console("/workflows"); strings.Contains(page, "No runner") {
		t.Errorf("with a runner again:\n%s", page)
	}
}

// When one of three NATS servers fails, the alert NATSServerDown fires after two minutes. It stops
// when the server is back. The clock is simulated.
func TestNATSServerDown(t *testing.T) {
	t.Parallel()
	cluster := natstest.StartCluster(t, 3)
	e := launchExecutor(t, cluster.URLs(), "--replicas=3")
	p := newPrometheus(t, target{"executor", e.metrics})
	c := clock{p, time.Now()}
	within(t, 20*time.Second, "three replicas", func() bool {
		return e.gauge(t, "hookstart_executor_stream_replicas", "current") == 3
	})
	c.advance(5 * time.Minute)
	if got := p.firing(); len(got) > 0 {
		t.Errorf("before: %v", got)
	}

	gone := (cluster.Leader(stream.ExecutionsName) + 1) % 3
	cluster.Stop(gone)
	within(t, time.Minute, "missing replica", func() bool {
		return e.gauge(t, "hookstart_executor_stream_replicas", "offline") == 1
	})
	if took := c.until(3*time.Minute, "NATSServerDown"); took < 2*time.Minute {
		t.Errorf("fires after %v", took)
	}

	cluster.Restart(gone)
	within(t, time.Minute, "three replicas", func() bool {
		return e.gauge(t, "hookstart_executor_stream_replicas", "current") == 3
	})
	c.until(time.Minute)
}

// When eleven executions have failed, the alert DeadLettersGrow fires after five minutes. It stops
// when the dead letters are dismissed. The clock is simulated.
func TestDeadLettersGrow(t *testing.T) {
	t.Parallel()
	const letters = 11
	server := natstest.Start(t)
	e := launchExecutor(t, server.URL())
	makeWorkflow(t, e.client, "failing")
	p := newPrometheus(t, target{"executor", e.metrics})
	c := clock{p, time.Now()}
	c.advance(15 * time.Minute)
	if got := p.firing(); len(got) > 0 {
		t.Errorf("before: %v", got)
	}

	nc := server.Connect(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- runner.Run(ctx, nc, runner.Options{Queue: "failing", Group: "group"}, func(
			context.Context, runner.Execution,
		) (any, error) {
			return nil, runner.Permanent(errors.New("on purpose"))
		})
	}()
	for range letters {
		if _, err := e.client.RerunTrigger(t.Context(), "failing", "node"); err != nil {
			t.Fatal(err)
		}
	}
	is := func(n float64) func() bool {
		return func() bool { return e.gauge(t, "hookstart_executor_dead_letters", "") == n }
	}
	within(t, time.Minute, "dead letters", is(letters))
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if took := c.until(7*time.Minute, "DeadLettersGrow"); took < 5*time.Minute {
		t.Errorf("fires after %v", took)
	}

	if _, err := e.client.DismissDeadLetters(t.Context(), api.SelectDeadLetters{}); err != nil {
		t.Fatal(err)
	}
	within(t, time.Minute, "end of the dead letters", is(0))
	c.until(time.Minute)
}

// The alert NotReady fires when a process has not been ready for five minutes, even if the process
// is connected to NATS and can be scraped. The test pauses the recorder's consumer, so that nothing
// is recorded. The clock is simulated.
func TestNotReady(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	e := launchExecutor(t, server.URL())
	p := newPrometheus(t, target{"executor", e.metrics})
	c := clock{p, time.Now()}
	ready := func(want float64) {
		t.Helper()
		within(t, 20*time.Second, fmt.Sprintf("readiness %g", want), func() bool {
			return e.gauge(t, "hookstart_executor_ready", "") == want
		})
	}
	ready(1)
	c.advance(10 * time.Minute)
	if got := p.firing(); len(got) > 0 {
		t.Errorf("before: %v", got)
	}

	js, err := jetstream.New(server.Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.PauseConsumer(t.Context(), stream.ExecutionsName, stream.RecorderConsumerName,
		time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	ready(0)
	if took := c.until(7*time.Minute, "NotReady"); took < 5*time.Minute {
		t.Errorf("fires after %v", took)
	}

	if _, err := js.ResumeConsumer(t.Context(), stream.ExecutionsName,
		stream.RecorderConsumerName); err != nil {
		t.Fatal(err)
	}
	ready(1)
	c.until(time.Minute)
}

// serve starts an HTTP server and returns its URL. For each request, the server calls the function
// at with the current time of the simulated clock. It responds with the text that the function
// returns: metrics in the text format.
func serve(t *testing.T, c *clock, at func(now time.Time) string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		_, _ = io.WriteString(w, at(c.now))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// The alerts for a second site fire while the site lags, lacks the stream of a queue, or has no
// contact with the first site. They stop when the site recovers. The test serves metrics like those
// of `hookstart admin second-site status --metrics`.
func TestSecondSite(t *testing.T) {
	t.Parallel()
	p := newPrometheus(t)
	c := &clock{p, time.Now()}
	var heard, stored time.Time // the zero time means now
	missing, uncopied := 0, 0
	p.targets = []target{{"node", serve(t, c, func(now time.Time) string {
		at := func(fixed time.Time) int64 {
			if fixed.IsZero() {
				fixed = now
			}
			return fixed.Unix()
		}
		return fmt.Sprintf(`hookstart_second_site_missing_messages{stream="EXECUTIONS"} %d
hookstart_second_site_missing_messages{stream="PROGRESS"} 0
hookstart_second_site_heard_timestamp_seconds{stream="EXECUTIONS"} %d
hookstart_second_site_heard_timestamp_seconds{stream="PROGRESS"} %d
hookstart_second_site_stored_timestamp_seconds{stream="EXECUTIONS"} %d
hookstart_second_site_stored_timestamp_seconds{stream="PROGRESS"} 0
hookstart_second_site_uncopied_streams %d
`, missing, at(heard), now.Unix(), at(stored), uncopied)
	})}}
	well := func() {
		t.Helper()
		c.advance(20 * time.Minute)
		if got := p.firing(); len(got) > 0 {
			t.Errorf("while all is well: %v", got)
		}
	}
	missing = 3 // messages that are still on their way
	well()
	missing, stored = 0, c.now // no message is missing, and no new one arrives
	well()

	missing = 1000
	c.until(11*time.Minute, "SecondSiteBehind")
	missing, stored = 0, time.Time{}
	c.until(time.Minute)

	uncopied = 2
	c.until(16*time.Minute, "SecondSiteIncomplete")
	uncopied = 0
	c.until(time.Minute)

	heard = c.now
	if took := c.until(8*time.Minute, "SecondSiteStandsStill"); took < 5*time.Minute {
		t.Errorf("fires after %v", took)
	}
	heard = time.Time{}
	c.until(time.Minute)
	well()
}

// The alert RecorderStopped fires if start messages are waiting but none is recorded, even if
// reports of runners are still recorded.
func TestRecorderStopped(t *testing.T) {
	t.Parallel()
	p := newPrometheus(t)
	c := &clock{p, time.Now()}
	starts, reports, lag := 0, 0, 0
	p.targets = []target{{"executor", serve(t, c, func(time.Time) string {
		reports += 100
		if lag == 0 {
			starts += 100
		}
		return fmt.Sprintf(`hookstart_executor_messages_total{kind="start"} %d
hookstart_executor_messages_total{kind="rejection"} 0
hookstart_executor_messages_total{kind="progress"} %d
hookstart_executor_lag_messages{stream="EXECUTIONS"} %d
`, starts, reports, lag)
	})}}
	c.advance(20 * time.Minute)
	if got := p.firing(); len(got) > 0 {
		t.Errorf("before: %v", got)
	}
	lag = 1000
	if took := c.until(12*time.Minute, "RecorderStopped"); took < 5*time.Minute {
		t.Errorf("fires after %v", took)
	}
	lag = 0
	c.until(time.Minute)
}

// The alert RecordedAgain reports rewinds, in which the executor processes earlier messages again.
// It fires when the counter of rewinds grows, and also when the first sample of a new executor is
// not zero, because that executor has then rewound at its start. If Prometheus has not scraped for
// a while and then sees an unchanged counter, the alert does not fire.
func TestRecordedAgain(t *testing.T) {
	t.Parallel()
	p := newPrometheus(t)
	c := &clock{p, time.Now()}
	rewinds, began := 1, c.now
	p.targets = []target{{"executor", serve(t, c, func(time.Time) string {
		return fmt.Sprintf(`hookstart_executor_rewinds_total{cause="database"} 0
hookstart_executor_rewinds_total{cause="stream"} %d
process_start_time_seconds %d
`, rewinds, began.Unix())
	})}}
	c.until(time.Minute, "RecordedAgain")
	c.until(16 * time.Minute)
	rewinds++
	c.until(time.Minute, "RecordedAgain")
	c.until(16 * time.Minute)
	c.now = c.now.Add(time.Hour)
	c.advance(5 * time.Minute)
	if got := p.firing(); len(got) > 0 {
		t.Errorf("after an hour without scrapes: %v", got)
	}
}

// The alert QueueMoveStands fires if the move of a queue takes longer than five minutes, but not
// while moves finish in time.
func TestQueueMoveStands(t *testing.T) {
	t.Parallel()
	p := newPrometheus(t)
	c := &clock{p, time.Now()}
	var began time.Time // the zero time means that no queue is moving
	p.targets = []target{{"executor", serve(t, c, func(now time.Time) string {
		lasted := 0.0
		if !began.IsZero() {
			lasted = now.Sub(began).Seconds()
		}
		return fmt.Sprintf("hookstart_executor_queue_move_seconds %g\n", lasted)
	})}}
	for range 10 { // moves that finish in time
		began = c.now
		c.advance(time.Minute)
		began = time.Time{}
		c.advance(time.Minute)
	}
	if got := p.firing(); len(got) > 0 {
		t.Errorf("with moves that end: %v", got)
	}
	began = c.now
	if took := c.until(6*time.Minute, "QueueMoveStands"); took < 5*time.Minute {
		t.Errorf("fires after %v", took)
	}
	began = time.Time{}
	c.until(time.Minute)
}
