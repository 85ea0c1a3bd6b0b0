package edit_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/ops/logtest"
	"github.com/hookstart/hookstart/shared/registry/consistency"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/registry/registrytest"
)

// The index of a process that was frozen or cut off from NATS may be outdated. The process's
// editor catches up before it responds to a call, even if, according to the outdated index, the
// call changes nothing or must be refused.
func TestNothingIsAnsweredFromAnOldRegistry(t *testing.T) {
	t.Parallel()
	r := registrytest.Start(t, natstest.Start(t).Connect(t))
	r.CreateWorkflow(t, "on", "pro", true)
	r.CreateWorkflow(t, "off", "pro", false)
	r.CreateWorkflow(t, "gone", "pro", false)
	r.CreateWorkflow(t, "other", "free", true)
	r.CreateWorkflow(t, "first", "free", false)

	late := &heldIndex{RegistryIndex: edit.NewRegistryIndex(nil)}
	follower, err := consistency.Follow(t.Context(), r.JetStream, late, logtest.Discard())
	fatal(t, err)
	t.Cleanup(follower.Stop)
	fatal(t, follower.CatchUp(t.Context()))
	lease := consistency.NewLease(r.JetStream.Conn(), follower)
	t.Cleanup(lease.Stop)
	editor, err := edit.NewEditor(t.Context(), edit.Config{
		JetStream: r.JetStream, RegistryIndex: late.RegistryIndex, Follower: follower, Lease: lease,
		Membership: r.Membership,
	})
	fatal(t, err)

	late.hold.Lock()
	ctx := t.Context()
	for _, change := range []func() error{
		func() error { _, err := r.Deactivate(ctx, "on"); return err },
		func() error { _, err := r.Activate(ctx, "off"); return err },
		func() error { return r.DeleteWorkflow(ctx, "gone") },
		func() error { _, err := r.Deactivate(ctx, "other"); return err },
		func() error {
			_, _, err := r.PutAccount(ctx, "on-pro", "Another name", "pro")
			return err
		},
	} {
		fatal(t, change())
	}
	r.CreateWorkflow(t, "new", "pro", false)
	for lease.AwaitValid(time.Now()) {
		<-time.After(10 * time.Millisecond)
	}

	calls := map[string]func(context.Context) error{
		"activate what was active": func(ctx context.Context) error {
			_, err := editor.Activate(ctx, "on")
			return err
		},
		"deactivate what was inactive": func(ctx context.Context) error {
			_, err := editor.Deactivate(ctx, "off")
			return err
		},
		"activate past what was the plan's limit": func(ctx context.Context) error {
			_, err := editor.Activate(ctx, "first")
			return err
		},
		"delete what was not there": func(ctx context.Context) error {
			return editor.DeleteWorkflow(ctx, "new")
		},
		"rotate at what was not there": func(ctx context.Context) error {
			return editor.RotateToken(ctx, "new", "node", 0)
		},
		"a sample payload for what was not there": func(ctx context.Context) error {
			return editor.SetSamplePayload(ctx, "new", "node", []byte("2"))
		},
		"put an account as it was": func(ctx context.Context) error {
			_, _, err := editor.PutAccount(ctx, "on-pro", "An account", "pro")
			return err
		},
		"show a node of a workflow that is deleted": func(ctx context.Context) error {
			_, err := editor.Trigger(ctx, "gone", "node")
			return err
		},
	}
	for name, call := range calls {
		ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}

	late.hold.Unlock()
	delete(calls, "show a node of a workflow that is deleted")
	delete(calls, "delete what was not there")
	for name, call := range calls {
		if err := call(ctx); err != nil {
			t.Errorf("%s, up to date: %v", name, err)
		}
	}
	if _, err := editor.Trigger(ctx, "gone", "node"); !errors.Is(err, edit.ErrNotFound) {
		t.Errorf("a node of a workflow that is deleted: %v", err)
	}
	for id, active := range map[string]bool{"on": true, "off": false, "first": true} {
		if w, _ := r.RegistryIndex.Workflow(id); w.Record.Active != active {
			t.Errorf("%s is active: %t", id, !active)
		}
	}
	if a, _ := r.RegistryIndex.Account("on-pro"); a.Record.Name != "An account" {
		t.Errorf("the account is called %q", a.Record.Name)
	}
}

func fatal(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// alwaysRaced is a JetStream that refuses every change of a record, as if a concurrent change had
// been stored just before.
type alwaysRaced struct {
	jetstream.JetStream
	tries *atomic.Int32
}

func (a alwaysRaced) KeyValue(ctx context.Context, bucket string) (jetstream.KeyValue, error) {
	kv, err := a.JetStream.KeyValue(ctx, bucket)
	return racedBucket{kv, a.tries}, err
}

func (a alwaysRaced) PublishMsg(
	context.Context, *nats.Msg, ...jetstream.PublishOpt,
) (*jetstream.PubAck, error) {
	a.tries.Add(1)
	return nil, jetstream.ErrKeyExists
}

type racedBucket struct {
	jetstream.KeyValue
	tries *atomic.Int32
}

func (b racedBucket) Update(context.Context, string, []byte, uint64) (uint64, error) {
	b.tries.Add(1)
	return 0, jetstream.ErrKeyExists
}

// If a change conflicts with concurrent changes again and again, the editor pauses between its
// attempts, so that it does not keep NATS busy.
func TestAChangePausesBetweenItsTries(t *testing.T) {
	t.Parallel()
	r := registrytest.Start(t, natstest.Start(t).Connect(t))
	r.CreateWorkflow(t, "wf", "pro", true)
	var tries atomic.Int32
	editor, err := edit.NewEditor(t.Context(), edit.Config{
		JetStream:     alwaysRaced{r.JetStream, &tries},
		RegistryIndex: r.RegistryIndex, Follower: r.Follower, Lease: r.Lease,
		Membership: r.Membership,
	})
	fatal(t, err)
	for name, change := range map[string]func(context.Context) error{
		"deactivate": func(ctx context.Context) error {
			_, err := editor.Deactivate(ctx, "wf")
			return err
		},
		"sample": func(ctx context.Context) error {
			return editor.SetSamplePayload(ctx, "wf", "node", []byte("1"))
		},
	} {
		tries.Store(0)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		if err := change(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
		if n := tries.Load(); n < 2 || n > 20 {
			t.Errorf("%s: tried %d times in two seconds", name, n)
		}
	}
}
