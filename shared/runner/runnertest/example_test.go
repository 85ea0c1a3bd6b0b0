package runnertest_test

import (
	"context"
	"strings"
	"testing"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/runner"
	"github.com/hookstart/hookstart/shared/runner/runnertest"
)

// A runner's own test: a real NATS server, an execution, the output.
func TestExample(t *testing.T) {
	t.Parallel()
	nc := natstest.Start(t).Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	shout := func(_ context.Context, e runner.Execution) (any, error) {
		return map[string]string{"shouted": strings.ToUpper(string(e.Payload.Body))}, nil
	}
	go func() { _ = runner.Run(t.Context(), nc, runner.Options{Group: "shouters"}, shout) }()

	id := ingress.Start(t, runnertest.Post{Body: "hello"})
	if got := ingress.Await(t, id); string(got.Output) != `{"shouted":"HELLO"}` {
		t.Errorf("%+v", got)
	}
}
