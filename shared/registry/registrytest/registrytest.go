// Package registrytest sets up a registry for tests in the same way as an executor does.
package registrytest

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/ops/logtest"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/consistency"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/registry/seal"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/stream"
)

// Registry is a registry together with an editor for it.
type Registry struct {
	*edit.Editor
	RegistryIndex *edit.RegistryIndex
	Follower      *consistency.Follower
	Lease         *consistency.Lease
	Membership    *consistency.Membership
	JetStream     jetstream.JetStream
}

// Start creates the missing streams and buckets, applies the default plans and announces an
// executor. The registry is stopped when the test ends.
func Start(tb testing.TB, nc *nats.Conn) *Registry {
	tb.Helper()
	return StartWithKeys(tb, nc, nil)
}

// StartWithKeys is like Start, but secrets are encrypted and decrypted with keys.
func StartWithKeys(tb testing.TB, nc *nats.Conn, keys *seal.Keys) *Registry {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	tb.Cleanup(cancel)
	log := logtest.Discard()
	check := func(err error) {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
	}

	js, err := jetstream.New(nc)
	check(err)
	check(stream.EnsureSharedStreams(ctx, js, stream.DefaultSettings))
	check(stream.EnsureReportsStream(ctx, js, 1))
	check(edit.EnsureBuckets(ctx, js, 1))

	r := &Registry{RegistryIndex: edit.NewRegistryIndex(keys), JetStream: js}
	r.Follower, err = consistency.Follow(ctx, js, r.RegistryIndex, log)
	check(err)
	tb.Cleanup(r.Follower.Stop)
	// JoinAsFirst does not wait for the leases of disconnected processes. In a test, there are none
	// before the first Start.
	r.Membership, err = consistency.JoinAsFirst(ctx, nc)
	check(err)
	tb.Cleanup(r.Membership.Stop)
	heartbeat, err := consistency.StartHeartbeat(ctx, nc, r.Follower, consistency.RoleExecutor, nil,
		consistency.ProcessInfo{}, log)
	check(err)
	tb.Cleanup(heartbeat.Stop)
	WriteInstallation(tb, js)
	check(r.Follower.CatchUp(ctx))
	r.Lease = consistency.NewLease(nc, r.Follower)
	tb.Cleanup(r.Lease.Stop)
	r.Editor, err = edit.NewEditor(ctx, edit.Config{
		JetStream: js, RegistryIndex: r.RegistryIndex, Follower: r.Follower, Lease: r.Lease,
		Membership: r.Membership, Keys: keys,
	})
	check(err)
	plans, err := edit.ParsePlans(edit.DefaultPlansJSON)
	check(err)
	check(r.PutPlans(ctx, plans))
	return r
}

// NewKeys returns keys for encrypting secrets: a single new random key.
func NewKeys(tb testing.TB) *seal.Keys {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "keys")
	if err := os.WriteFile(path, []byte(seal.NewKeyLine()), 0o600); err != nil {
		tb.Fatal(err)
	}
	keys, err := seal.ReadKeyFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return keys
}

// WriteInstallation writes the registry's identity, with a new WriteID. An executor does so once it
// has checked that the registry is not older than the newest confirmed state.
func WriteInstallation(tb testing.TB, js jetstream.JetStream) {
	tb.Helper()
	var err error
	retry.Until(tb.Context(), 50*time.Millisecond, func() bool {
		var i registry.Installation
		var over uint64
		if i, over, err = edit.ReadInstallation(tb.Context(), js); err == nil {
			i.ID, i.Restoring = cmp.Or(i.ID, "installation"), false
			_, err = edit.WriteInstallation(tb.Context(), js, i, over)
		}
		return err == nil
	})
	if err != nil {
		tb.Fatal(err)
	}
}

// CreateWorkflow creates a workflow with the trigger node "node", and returns the node's token. The
// account's ID is "on-" followed by plan, for example "on-free"; the account is created if
// necessary.
func (r *Registry) CreateWorkflow(tb testing.TB, id, plan string, active bool) (token string) {
	tb.Helper()
	ctx := tb.Context()
	if _, _, err := r.PutAccount(ctx, "on-"+plan, "An account", plan); err != nil {
		tb.Fatal(err)
	}
	if _, _, err := r.PutWorkflow(ctx, edit.WorkflowSpec{
		ID: id, AccountID: "on-" + plan, Name: id, Triggers: []edit.TriggerSpec{{NodeID: "node"}},
	}); err != nil {
		tb.Fatal(err)
	}
	if active {
		if _, err := r.Activate(ctx, id); err != nil {
			tb.Fatal(err)
		}
	}
	return r.Token(tb, id, "node")
}

// Token returns the newest token of a node.
func (r *Registry) Token(tb testing.TB, workflowID, nodeID string) string {
	tb.Helper()
	trigger, err := r.Trigger(tb.Context(), workflowID, nodeID)
	if err != nil {
		tb.Fatal(err)
	}
	return trigger.Tokens[0].Token
}
