package runnertest_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/embedded"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/runner"
	"github.com/hookstart/hookstart/shared/runner/runnertest"
)

func TestMarkingNoErrorMakesNone(t *testing.T) {
	t.Parallel()
	if err := runner.Permanent(nil); err != nil {
		t.Errorf("Permanent(nil) is %#v", err)
	}
	if err := runner.RetryAfter(nil, time.Second); err != nil {
		t.Errorf("RetryAfter(nil) is %#v", err)
	}
}

// codeError is the error type of a handler that makes a common mistake: it returns a nil *codeError
// as its error. As an interface value, that is not nil.
type codeError struct{ text string }

func (e *codeError) Error() string { return e.text }

// evil is an error, and a panic value, whose methods all panic.
type evil struct{}

func (evil) Error() string                { panic(evil{}) }
func (evil) Unwrap() error                { panic(evil{}) }
func (evil) As(any) bool                  { panic(evil{}) }
func (evil) MarshalJSON() ([]byte, error) { panic(evil{}) }

// badError is an output whose MarshalJSON method returns an error whose Error method panics.
type badError struct{}

func (badError) MarshalJSON() ([]byte, error) { return nil, evil{} }

// evilTraces is a trace provider in which one part panics: the provider itself, its tracers, or
// their spans. The field panics selects the part.
type evilTraces struct {
	embedded.TracerProvider
	panics string
}

func (e evilTraces) Tracer(string, ...trace.TracerOption) trace.Tracer {
	if e.panics == "provider" {
		panic(evil{})
	}
	return evilTracer{panics: e.panics}
}

type evilTracer struct {
	embedded.Tracer
	panics string
}

func (e evilTracer) Start(
	ctx context.Context, _ string, _ ...trace.SpanStartOption,
) (context.Context, trace.Span) {
	if e.panics == "tracer" {
		panic(evil{})
	}
	span := evilSpan{noop.Span{}}
	return trace.ContextWithSpan(ctx, span), span
}

type evilSpan struct{ noop.Span }

func (evilSpan) End(...trace.SpanEndOption) { panic(evil{}) }

type evilLog struct{ slog.Handler }

func (evilLog) Enabled(context.Context, slog.Level) bool { panic(evil{}) }

// If a method of a handler's error, output or panic value panics, only that execution fails. The
// runner and its process continue.
func TestAHandlersValuesEndItsExecutionOnly(t *testing.T) {
	t.Parallel()
	nc := natstest.Start(t).Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	var noCode *codeError
	handlers := map[string]struct {
		handler func() (any, error)
		status  execution.Status
		reason  string
	}{
		"nil, permanent": {func() (any, error) {
			return 1, runner.Permanent(nil)
		}, execution.Succeeded, ""},
		"nil, later": {func() (any, error) {
			return 1, runner.RetryAfter(nil, time.Second)
		}, execution.Succeeded, ""},
		"pointer": {
			func() (any, error) {
				return nil, noCode
			}, execution.Failed,
			"returned a *runnertest_test.codeError whose methods panic: runtime error: invalid " +
				"memory",
		},
		"permanent pointer": {func() (any, error) {
			return nil, runner.Permanent(noCode)
		}, execution.Failed, "methods panic: runtime error"},
		"error": {func() (any, error) {
			return nil, evil{}
		}, execution.Failed, "methods panic: a runnertest_test.evil that cannot be printed"},
		"joined error": {func() (any, error) {
			return nil, errors.Join(errors.New("one"), evil{})
		}, execution.Failed, "cannot be printed"},
		"panic": {func() (any, error) {
			panic(evil{})
		}, execution.Failed, "panic: a runnertest_test.evil that cannot be printed"},
		"output": {func() (any, error) {
			return evil{}, nil
		}, execution.Failed, "panic: a runnertest_test.evil"},
		"output's error": {func() (any, error) { return badError{}, nil }, execution.Failed, ""},
	}
	start(t, nc, runner.Options{Attempts: 2, Backoff: soon, Concurrency: 1}, func(
		_ context.Context, e runner.Execution,
	) (any, error) {
		return handlers[string(e.Payload.Body)].handler()
	})
	for name, c := range handlers {
		got := ingress.Await(t, ingress.Start(t, runnertest.Post{Body: name}))
		if got.Status != c.status || !strings.Contains(got.Error, c.reason) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// The functions in Options may panic: the runner continues and keeps its guarantees.
func TestPanicsInOptions(t *testing.T) {
	t.Parallel()
	nc := natstest.Start(t).Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	for queue, options := range map[string]runner.Options{
		"observe": {Observe: func(runner.Attempt) { panic(evil{}) }},
		// The handler's first attempt fails with evil, so a.Err.Error panics.
		"text":     {Observe: func(a runner.Attempt) { _ = a.Err.Error() }},
		"backoff":  {Backoff: func(int) time.Duration { panic(evil{}) }},
		"ready":    {OnReady: func() { panic(evil{}) }},
		"provider": {Traces: evilTraces{panics: "provider"}},
		"tracer":   {Traces: evilTraces{panics: "tracer"}},
		"span":     {Traces: evilTraces{panics: "span"}},
		"log":      {Log: slog.New(evilLog{})},
	} {
		options.Queue, options.Attempts = queue, 2
		start(t, nc, options, func(_ context.Context, e runner.Execution) (any, error) {
			if e.Attempt == 1 {
				return nil, evil{}
			}
			return "ran", nil
		})
		got := ingress.Await(t, ingress.Start(t, runnertest.Post{Queue: queue}))
		if got.Status != execution.Succeeded || string(got.Output) != `"ran"` {
			t.Errorf("%s: %+v", queue, got)
		}
	}
}

// Options.Log receives a line for each attempt. If it is not set, failed attempts are logged to the
// default log.
func TestAttemptsAreLogged(t *testing.T) {
	nc := natstest.Start(t).Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	var own, standard lines
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&standard, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	for queue, log := range map[string]*slog.Logger{
		"own":      slog.New(slog.NewTextHandler(&own, nil)),
		"standard": nil,
	} {
		stop := start(t, nc, runner.Options{Queue: queue, Backoff: soon, Log: log}, func(
			_ context.Context, e runner.Execution,
		) (any, error) {
			if e.Attempt == 1 {
				return nil, errors.New("once")
			}
			return nil, nil
		})
		ingress.Await(t, ingress.Start(t, runnertest.Post{Queue: queue}))
		stop()
	}
	for _, c := range []struct {
		log  *lines
		want []string
	}{
		{
			&own, []string{
				`level=WARN msg=run result="tried again" attempt=1 `,
				"level=INFO msg=run result=succeeded attempt=2 ",
			},
		},
		{&standard, []string{`level=WARN msg=run result="tried again" attempt=1 `}},
	} {
		got := c.log.all()
		if len(got) != len(c.want) {
			t.Fatalf("%q", got)
		}
		for i, line := range got {
			if !strings.Contains(line, c.want[i]) ||
				!strings.Contains(line, "workflow_id=workflow") {
				t.Errorf("%q, want %q", line, c.want[i])
			}
		}
	}
}

// lines collects the lines that a log writes.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *lines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Split(strings.TrimSuffix(l.text.String(), "\n"), "\n")
}
