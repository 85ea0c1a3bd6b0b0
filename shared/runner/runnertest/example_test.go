package runnertest_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/runner"
	"github.com/hookstart/hookstart/shared/runner/runnertest"
)

// A test of a runner uses a real NATS server, starts an execution and checks the output.
func Example() {
	t, done := exampleTest() // a test uses its own t
	defer done()

	nc := natstest.Start(t).Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	shout := func(_ context.Context, e runner.Execution) (any, error) {
		return map[string]string{"shouted": strings.ToUpper(string(e.Payload.Body))}, nil
	}
	go func() { _ = runner.Run(t.Context(), nc, runner.Options{Group: "shouters"}, shout) }()

	id := ingress.Start(t, runnertest.Post{Body: "hello"})
	end := ingress.Await(t, id)
	fmt.Fprintln(os.Stdout, end.Status, string(end.Output))
	// Output: succeeded {"shouted":"HELLO"}
}

// exampleTest returns a substitute for the *testing.T that an example does not have. done calls the
// functions registered with Cleanup, as happens when a test ends.
func exampleTest() (t testing.TB, done func()) {
	ctx, cancel := context.WithCancel(context.Background())
	e := &exampleTB{ctx: ctx, cleanups: []func(){cancel}}
	return e, func() {
		for _, f := range slices.Backward(e.cleanups) {
			f()
		}
	}
}

type exampleTB struct {
	testing.TB // nil: only the methods defined below are used
	ctx        context.Context
	cleanups   []func()
}

func (e *exampleTB) Helper()                           {}
func (e *exampleTB) Name() string                      { return "Example" }
func (e *exampleTB) Context() context.Context          { return e.ctx }
func (e *exampleTB) Cleanup(f func())                  { e.cleanups = append(e.cleanups, f) }
func (e *exampleTB) Fatal(args ...any)                 { panic(args) }
func (e *exampleTB) Fatalf(format string, args ...any) { panic([]any{format, args}) }

func (e *exampleTB) TempDir() string {
	dir, err := os.MkdirTemp("", "runnertest")
	if err != nil {
		panic(err)
	}
	e.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
