package alerts

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/runner"
	"github.com/hookstart/hookstart/shared/stream"
)

// All runners of a queue are killed, while Prometheus scrapes and evaluates at the intervals of
// prometheus.yml. Within a minute the page, the API, the metric and the alert report that no runner
// takes the queue. They recover without intervention when a runner has joined again.
func TestQueueStuck(t *testing.T) {
	t.Parallel()
	l := launchLocal(t)
	makeWorkflow(t, l.client, "stuck")
	p := newPrometheus(t, target{"executor", l.metrics}, target{"ingress", l.metrics})
	console := signIn(t, l)
	taken := func(by int) func() bool {
		return func() bool {
			q, members := l.queue(t, "stuck")
			return members == by && q.Waiting == 0 && q.OldestAcceptedAt.IsZero() &&
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

// One of three NATS servers fails. The alert fires two minutes later, and stops when the server is
// back. The time is that of a simulated clock.
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

	gone := (cluster.Leader(stream.Name) + 1) % 3
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

// Eleven executions fail. The alert fires five minutes later, and stops when they are dismissed.
// The time is that of a simulated clock.
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
