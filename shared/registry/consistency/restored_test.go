package consistency_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/ops/logtest"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/consistency"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/registry/registrytest"
)

// process simulates an ingress: it has a snapshot that follows the registry, and a lease.
type process struct {
	*registry.Snapshot
	lease *consistency.Lease
}

func startProcess(t *testing.T, server *natstest.Node) process {
	t.Helper()
	nc := server.Connect(t)
	js, err := jetstream.New(nc)
	fatal(t, err)
	p := process{Snapshot: registry.NewSnapshot(nil)}
	follower, err := consistency.Follow(t.Context(), js, p, logtest.Discard())
	fatal(t, err)
	t.Cleanup(follower.Stop)
	heartbeat, err := consistency.StartHeartbeat(t.Context(), nc, follower, consistency.RoleIngress,
		nil, consistency.ProcessInfo{}, logtest.Discard())
	fatal(t, err)
	t.Cleanup(heartbeat.Stop)
	p.lease = consistency.NewLease(nc, follower)
	t.Cleanup(p.lease.Stop)
	return p
}

// noLongerValid waits until the process's lease has expired.
func (p process) noLongerValid() {
	for p.lease.AwaitValid(time.Now()) {
		<-time.After(10 * time.Millisecond)
	}
}

// neverValid fails the test if the process's lease is valid at any time within the given duration.
func (p process) neverValid(t *testing.T, within time.Duration) {
	t.Helper()
	for begin := time.Now(); time.Since(begin) < within; {
		if p.lease.AwaitValid(time.Now()) {
			t.Fatal("a process answers from a registry that may have been lost")
		}
	}
}

// validAgain waits until the process's lease is valid again.
func (p process) validAgain(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for !p.lease.AwaitValid(time.Now()) {
		if ctx.Err() != nil {
			t.Fatal("the lease does not come back")
		}
		<-time.After(10 * time.Millisecond)
	}
}

// inForce calls change again and again until it succeeds, because changes fail while the editor's
// copy of the registry is not current.
func inForce(t *testing.T, change func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		err := change(ctx)
		if err == nil {
			return
		}
		if ctx.Err() != nil || errors.Is(err, edit.ErrNotFound) {
			t.Fatal(err)
		}
		<-time.After(50 * time.Millisecond)
	}
}

// The server's storage is reset to an earlier copy while the processes are running. Afterwards, the
// changes made since that copy are no longer in force, and new changes come into force.
func TestARestoredRegistryIsLoadedAnew(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	r := registrytest.Start(t, server.Connect(t))
	r.CreateWorkflow(t, "kept", "pro", true)
	server.Stop()
	backup := t.TempDir()
	fatal(t, os.CopyFS(backup, os.DirFS(server.StoreDir())))
	server.Restart()
	p := startProcess(t, server)
	inForce(t, func(ctx context.Context) error { _, err := r.Deactivate(ctx, "kept"); return err })
	for _, id := range []string{"later", "and-later"} {
		r.CreateWorkflow(t, id, "pro", true)
	}

	server.Stop()
	p.noLongerValid()
	fatal(t, os.RemoveAll(server.StoreDir()))
	fatal(t, os.CopyFS(server.StoreDir(), os.DirFS(backup)))
	server.Restart()
	// The lease stays invalid until an executor has checked the registry, which may be older than
	// the confirmed state.
	p.neverValid(t, 3*time.Second)
	registrytest.WriteInstallation(t, r.JetStream)
	p.validAgain(t)
	if _, found := p.Lookup("later"); found {
		t.Error("a workflow is in force that the restored registry does not have")
	}
	if view, _ := p.Lookup("kept"); !view.Workflow.Active {
		t.Error("a workflow is not as in the restored registry")
	}
	inForce(t, func(ctx context.Context) error { return r.EnsureCurrent(ctx) })
	if _, exists := r.RegistryIndex.Workflow("later"); exists {
		t.Error("the index has a workflow that the restored registry does not have")
	}
	inForce(t, func(ctx context.Context) error { _, err := r.Deactivate(ctx, "kept"); return err })
	if view, _ := p.Lookup("kept"); view.Workflow.Active {
		t.Error("a change after the restoration is not in force")
	}
	r.CreateWorkflow(t, "new", "pro", true)
	if view, found := p.Lookup("new"); !found || !view.Workflow.Active {
		t.Error("a new workflow is not in force")
	}
}

// If the bucket is deleted and recreated while the processes are running, they load the new bucket.
func TestABucketThatIsCreatedAnewIsLoaded(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	r := registrytest.Start(t, server.Connect(t))
	r.CreateWorkflow(t, "old", "pro", true)
	p := startProcess(t, server)
	ctx := t.Context()
	for _, bucket := range []string{registry.Bucket, registry.SecretsBucket} {
		fatal(t, r.JetStream.DeleteKeyValue(ctx, bucket))
	}
	p.noLongerValid()
	fatal(t, edit.EnsureBuckets(ctx, r.JetStream, 1))
	p.neverValid(t, 3*time.Second)
	registrytest.WriteInstallation(t, r.JetStream)
	p.validAgain(t)
	if _, ok := p.Lookup("old"); ok {
		t.Error("a workflow is in force that is not in the registry")
	}
	plans, err := edit.ParsePlans(edit.DefaultPlansJSON)
	fatal(t, err)
	inForce(t, func(ctx context.Context) error { return r.PutPlans(ctx, plans) })
	r.CreateWorkflow(t, "new", "pro", true)
	if view, ok := p.Lookup("new"); !ok || !view.Workflow.Active || !view.WithinPlan {
		t.Error("a new workflow is not in force")
	}
}
