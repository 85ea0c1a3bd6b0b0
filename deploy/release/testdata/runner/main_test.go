package main

import (
	"testing"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/runner"
	"github.com/hookstart/hookstart/shared/runner/runnertest"
)

func TestShout(t *testing.T) {
	nc := natstest.Start(t).Connect(t)
	hookstart := runnertest.NewIngress(t, nc)
	go func() { _ = runner.Run(t.Context(), nc, runner.Options{Group: "shouters"}, shout) }()

	id := hookstart.Start(t, runnertest.Post{Body: "hello"})
	if got := hookstart.Await(t, id); string(got.Output) != `{"shouted":"HELLO"}` {
		t.Errorf("%+v", got)
	}
}
