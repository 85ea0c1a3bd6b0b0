package consistency_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/ops/logtest"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/consistency"
	"github.com/hookstart/hookstart/shared/registry/registrytest"
)

// A process can start while the NATS server is restarting: StartHeartbeat waits for the server
// instead of failing.
func TestAnnounceWaitsForNATS(t *testing.T) {
	t.Parallel()
	server := natstest.StartProcess(t)
	nc := server.Connect(t)
	r := registrytest.Start(t, nc)
	f, err := consistency.Follow(t.Context(), r.JetStream, registry.NewSnapshot(nil),
		logtest.Discard())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Stop()
	if err := f.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}

	server.Pause()
	before := nc.Stats().OutMsgs
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	announced := make(chan error, 1)
	var a *consistency.Heartbeat
	go func() {
		var err error
		a, err = consistency.StartHeartbeat(ctx, nc, f, consistency.RoleIngress, nil,
			consistency.ProcessInfo{}, logtest.Discard())
		announced <- err
	}()
	for nc.Stats().OutMsgs == before && ctx.Err() == nil {
		// Wait until StartHeartbeat has sent a message. From then on, StartHeartbeat waits for the
		// reply of the server, which is frozen.
		runtime.Gosched()
	}
	server.Kill()
	server.Restart()
	if err := <-announced; err != nil {
		t.Fatal(err)
	}
	defer a.Stop()
	// The process is now announced, so AwaitInForce must not confirm a revision that the process
	// has not applied.
	soon, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	var unconfirmed *consistency.UnconfirmedError
	if err := r.Membership.AwaitInForce(soon, f.Revision()+1); !errors.As(err, &unconfirmed) ||
		!strings.Contains(unconfirmed.Error(), consistency.RoleIngress) {
		t.Errorf("nobody waits for a process that has announced itself: %v", err)
	}
}
