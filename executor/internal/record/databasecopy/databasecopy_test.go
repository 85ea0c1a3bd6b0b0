package databasecopy_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/internal/record/databasecopy"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/sqlite"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/ops/logtest"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/consistency"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/registry/registrytest"
	"github.com/hookstart/hookstart/shared/retry"
)

func fatal(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func openStore(t *testing.T) store.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "hookstart.db"))
	fatal(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// process is an executor reduced to the parts that use the registry.
type process struct {
	*edit.Editor
	index *edit.RegistryIndex
	copy  *databasecopy.RegistryCopier
	js    jetstream.JetStream
	stop  func()
}

// start starts an executor with the database s. If keeps is true, the executor also mirrors the
// registry to the database, as a complete executor does.
func start(t *testing.T, nc *nats.Conn, s store.Store, keeps bool) (*process, error) {
	t.Helper()
	js, err := jetstream.New(nc)
	fatal(t, err)
	return startWith(t, nc, js, s, keeps)
}

// startWith is like start, but the RegistryCopier uses the given JetStream.
func startWith(
	t *testing.T, nc *nats.Conn, copying jetstream.JetStream, s store.Store, keeps bool,
) (*process, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	js, err := jetstream.New(nc)
	fatal(t, err)
	fatal(t, edit.EnsureBuckets(ctx, js, 1))
	p := &process{index: edit.NewRegistryIndex(nil), js: js, stop: cancel}
	follower, err := consistency.Follow(ctx, js, p.index, logtest.Discard())
	fatal(t, err)
	t.Cleanup(follower.Stop)
	membership, err := consistency.JoinAsFirst(ctx, nc)
	fatal(t, err)
	t.Cleanup(membership.Stop)
	heartbeat, err := consistency.StartHeartbeat(ctx, nc, follower, consistency.RoleExecutor, nil,
		consistency.ProcessInfo{}, logtest.Discard())
	fatal(t, err)
	t.Cleanup(heartbeat.Stop)
	p.copy = databasecopy.New(databasecopy.Config{
		JetStream: copying, Store: s, Follower: follower, Log: logtest.Discard(),
		EnsureBuckets: func(ctx context.Context) error { return edit.EnsureBuckets(ctx, js, 1) },
	})
	beginning, stop := context.WithTimeout(ctx, 20*time.Second)
	defer stop()
	if err := p.copy.Initialize(beginning); err != nil {
		return nil, err
	}
	lease := consistency.NewLease(nc, follower)
	t.Cleanup(lease.Stop)
	mustBecomeCurrent(t, func(context.Context) (err error) {
		p.Editor, err = edit.NewEditor(ctx, edit.Config{
			JetStream: js, RegistryIndex: p.index, Follower: follower, Lease: lease,
			Membership: membership, DatabaseCopy: p.copy,
		})
		return err
	})
	plans, err := edit.ParsePlans(edit.DefaultPlansJSON)
	fatal(t, err)
	mustBecomeCurrent(t, func(ctx context.Context) error { return p.PutPlans(ctx, plans) })
	if keeps {
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.copy.Run(ctx)
		}()
		t.Cleanup(func() { cancel(); <-done })
	}
	return p, nil
}

func mustStart(t *testing.T, nc *nats.Conn, s store.Store) *process {
	t.Helper()
	p, err := start(t, nc, s, true)
	fatal(t, err)
	return p
}

// workflow creates an active workflow of the account acme, and returns its token.
func (p *process) workflow(t *testing.T, id string) string {
	t.Helper()
	p.workflowOf(t, "acme", id)
	return p.token(t, id)
}

// workflowOf creates an active workflow of the given account. It may be called from any goroutine
// of a test.
func (p *process) workflowOf(t *testing.T, account, id string) {
	t.Helper()
	// Retry: the executor refuses changes until it has checked that its registry is current.
	// Operators get the status 503 in that case.
	err := retryUntilCurrent(t, func(ctx context.Context) error {
		_, _, err := p.PutAccount(ctx, account, "", "ultra")
		if err == nil {
			_, _, err = p.PutWorkflow(ctx, edit.WorkflowSpec{
				ID:        id,
				AccountID: account,
				Triggers:  []edit.TriggerSpec{{NodeID: "n"}},
			})
		}
		if err == nil {
			_, err = p.Activate(ctx, id)
		}
		return err
	})
	if err != nil {
		t.Errorf("workflow %s: %v", id, err)
	}
}

func (p *process) token(t *testing.T, id string) string {
	t.Helper()
	// Retry: after each reconnect, an executor refuses calls until it has checked that its registry
	// is current.
	var node *edit.TriggerInfo
	mustBecomeCurrent(t, func(ctx context.Context) (err error) {
		node, err = p.Trigger(ctx, id, "n")
		return err
	})
	if len(node.Tokens) != 1 {
		t.Fatalf("%s has %d tokens", id, len(node.Tokens))
	}
	return node.Tokens[0].Token
}

// ingress is an ingress reduced to its copy of the registry and the lease that allows it to use the
// copy.
type ingress struct {
	*registry.Snapshot
	follower *consistency.Follower
	lease    *consistency.Lease
}

func startIngress(t *testing.T, nc *nats.Conn) *ingress {
	t.Helper()
	js, err := jetstream.New(nc)
	fatal(t, err)
	i := &ingress{Snapshot: registry.NewSnapshot(nil)}
	follower, err := consistency.Follow(t.Context(), js, i, logtest.Discard())
	fatal(t, err)
	t.Cleanup(follower.Stop)
	heartbeat, err := consistency.StartHeartbeat(t.Context(), nc, follower, consistency.RoleIngress,
		nil, consistency.ProcessInfo{Capabilities: consistency.Capabilities()}, logtest.Discard())
	fatal(t, err)
	t.Cleanup(heartbeat.Stop)
	i.follower, i.lease = follower, consistency.NewLease(nc, follower)
	t.Cleanup(i.lease.Stop)
	return i
}

// awaitUnavailable waits until the ingress has lost its lease. Meanwhile, it checks that the
// ingress knows all the active workflows.
func (i *ingress) awaitUnavailable(t *testing.T, active ...string) {
	t.Helper()
	for i.lease.IsValid(time.Now()) {
		i.knows(t, active...)
		<-time.After(time.Millisecond)
	}
}

// awaitAvailable waits until the ingress has a lease, and returns how long that took. It then
// checks that the ingress knows all the active workflows.
func (i *ingress) awaitAvailable(t *testing.T, active ...string) time.Duration {
	t.Helper()
	began := time.Now()
	for !i.lease.IsValid(time.Now()) {
		if time.Since(began) > time.Minute {
			t.Fatalf("the registry is not restored: %v", i.lease.RenewalError())
		}
		<-time.After(time.Millisecond)
	}
	i.knows(t, active...)
	return time.Since(began)
}

func (i *ingress) knows(t *testing.T, active ...string) {
	t.Helper()
	for _, id := range active {
		view, ok := i.Lookup(id)
		// If the lease has expired since the lookup, ignore the result, as the ingress would.
		if (!ok || !view.Workflow.Active || !view.WithinPlan) && i.lease.IsValid(time.Now()) {
			t.Fatalf("workflow %s: found %t, while the registry is relied on", id, ok)
		}
	}
}

func ids(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprint("wf", i))
	}
	return list
}

// Flags of TestALostRegistryIsRestored: losses is the number of times that NATS loses its storage,
// and workflows is the number of workflows in the registry.
var (
	losses = flag.Int("losses", 2,
		"how often TestALostRegistryIsRestored deletes the store of NATS")
	workflows = flag.Int("workflows", 20, "how many workflows TestALostRegistryIsRestored makes")
)

// While an executor and an ingress are running, NATS loses its whole storage. The executor restores
// the registry from the database, with the same tokens and without deleted workflows. Meanwhile,
// the ingress never uses an incomplete registry.
func TestALostRegistryIsRestored(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	p := mustStart(t, server.Connect(t), openStore(t))
	in := startIngress(t, server.Connect(t))
	all := ids(*workflows)
	var making sync.WaitGroup
	const makers = 16
	for maker := range makers {
		making.Go(func() {
			for n := maker; n < len(all); n += makers {
				p.workflowOf(t, fmt.Sprint("account", maker), all[n])
			}
		})
	}
	making.Wait()
	tokens := map[string]string{}
	for _, id := range all[:min(len(all), 100)] {
		tokens[id] = p.token(t, id)
	}
	p.workflow(t, "deleted")
	fatal(t, p.DeleteWorkflow(t.Context(), "deleted"))
	for n := range *losses {
		server.Stop()
		fatal(t, os.RemoveAll(server.StoreDir()))
		lost := time.Now()
		server.Restart()
		in.awaitUnavailable(t, all...)
		in.awaitAvailable(t, all...)
		t.Logf("loss %d: the registry of %d workflows was relied on again %s after the server "+
			"was ended", n+1, len(all), time.Since(lost).Round(10*time.Millisecond))
		if _, ok := in.Lookup("deleted"); ok {
			t.Error("a deleted workflow is there again")
		}
		mustBecomeCurrent(t, p.EnsureCurrent)
		for id, token := range tokens {
			if p.token(t, id) != token {
				t.Errorf("%s has another token", id)
			}
		}
		later := fmt.Sprint("later", n)
		tokens[later] = p.workflow(t, later) // changes are still confirmed
		all = append(all, later)
		in.knows(t, all...)
	}
}

// While an executor and an ingress are running, NATS is restarted with an older copy of its
// storage, and then another ingress starts. The executor restores the registry, and neither ingress
// uses the older one.
func TestAnOlderRegistryIsRestored(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	s := openStore(t)
	p := mustStart(t, server.Connect(t), s)
	p.workflow(t, "old")
	p.workflow(t, "deleted")
	server.Stop()
	backup := t.TempDir()
	fatal(t, os.CopyFS(backup, os.DirFS(server.StoreDir())))
	server.Restart()
	in := startIngress(t, server.Connect(t))
	in.awaitAvailable(t, "old", "deleted")
	mustBecomeCurrent(t, func(ctx context.Context) error {
		return p.DeleteWorkflow(ctx, "deleted")
	})
	token := p.workflow(t, "later")

	server.Stop()
	fatal(t, os.RemoveAll(server.StoreDir()))
	fatal(t, os.CopyFS(server.StoreDir(), os.DirFS(backup)))
	server.Restart()
	in.awaitUnavailable(t, "old", "later")
	in.awaitAvailable(t, "old", "later")
	another := startIngress(t, server.Connect(t))
	another.awaitAvailable(t, "old", "later")
	for _, one := range []*ingress{in, another} {
		if _, ok := one.Lookup("deleted"); ok {
			t.Error("a deleted workflow is there again")
		}
	}
	mustBecomeCurrent(t, p.EnsureCurrent)
	if p.token(t, "later") != token {
		t.Error("it has another token")
	}
}

// mustBecomeCurrent retries a call until it succeeds, because the editor may not consider the
// registry current at first. It ends the test if the call does not succeed within half a minute.
func mustBecomeCurrent(t *testing.T, call func(context.Context) error) {
	t.Helper()
	if err := retryUntilCurrent(t, call); err != nil {
		t.Fatal(err)
	}
}

// retryUntilCurrent is like mustBecomeCurrent, but returns the last error instead of ending the
// test, so that goroutines of a test may call it.
func retryUntilCurrent(t *testing.T, call func(context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		err := call(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		<-time.After(50 * time.Millisecond)
	}
}

// Two executors with the same database restore the registry at the same time, and a third one
// starts while NATS is empty. Afterwards, all of them have the same tokens and can change the
// registry.
func TestTwoExecutorsRestoreAtOnce(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	s := openStore(t)
	p := mustStart(t, server.Connect(t), s)
	mustStart(t, server.Connect(t), s)
	in := startIngress(t, server.Connect(t))
	all := ids(5)
	for _, id := range all {
		p.workflow(t, id)
	}
	server.Stop()
	fatal(t, os.RemoveAll(server.StoreDir()))
	server.Restart()
	third := mustStart(t, server.Connect(t), s)
	in.awaitAvailable(t, all...)
	// While another executor is still restoring the registry, editors refuse calls, so retry.
	tokens := func(from *process) (found []string) {
		mustBecomeCurrent(t, func(ctx context.Context) error {
			found = nil
			for _, id := range all {
				node, err := from.Trigger(ctx, id, "n")
				if err != nil {
					return err
				}
				for _, token := range node.Tokens {
					found = append(found, id+" "+token.Token)
				}
			}
			return nil
		})
		return found
	}
	if first, other := tokens(p), tokens(third); len(first) != len(all) ||
		!slices.Equal(first, other) {
		t.Errorf("the tokens at one executor are %q, at another one %q", first, other)
	}
	mustBecomeCurrent(t, func(ctx context.Context) error {
		_, _, err := p.PutAccount(ctx, "acme", "", "ultra")
		return err
	})
	p.workflow(t, "later")
	in.knows(t, append(all, "later")...)
}

// heldStore is a store in which, while held is true, each restore waits before it reads its first
// page.
type heldStore struct {
	store.Store
	held        atomic.Bool
	began, goOn chan struct{}
}

func newHeldStore(s store.Store) *heldStore {
	return &heldStore{Store: s, began: make(chan struct{}), goOn: make(chan struct{})}
}

func (h *heldStore) RegistryRecords(
	ctx context.Context, bucket, after string, limit int,
) ([]store.RegistryRecord, error) {
	if h.held.Load() && bucket == registry.SecretsBucket && after == "" && limit > 1 {
		for _, step := range []chan struct{}{h.began, h.goOn} {
			select {
			case step <- struct{}{}:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
	return h.Store.RegistryRecords(ctx, bucket, after, limit)
}

// A second executor begins to restore the registry while the first one is still restoring it. The
// second one must not undo the work of the first: if a restore takes longer than compareInterval,
// they could otherwise undo each other's work forever.
func TestARestoreIsNotUndoneByAnother(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	s := openStore(t)
	first, second := newHeldStore(s), newHeldStore(s)
	p := mustStart(t, server.Connect(t), first)
	mustStart(t, server.Connect(t), second)
	p.workflow(t, "wf")
	server.Stop()
	fatal(t, os.RemoveAll(server.StoreDir()))
	first.held.Store(true)
	second.held.Store(true)
	server.Restart()
	<-first.began
	<-second.began
	<-first.goOn
	for poll := time.NewTicker(10 * time.Millisecond); ; {
		select {
		case <-first.began:
			t.Fatal("the first restore failed")
		case <-poll.C:
			now, _, err := edit.ReadInstallation(t.Context(), p.js)
			if err != nil || now.ID == "" {
				continue
			}
		}
		poll.Stop()
		break
	}
	first.held.Store(false)
	second.held.Store(false)
	<-second.goOn
	mustBecomeCurrent(t, func(ctx context.Context) error {
		_, _, err := p.PutAccount(ctx, "acme", "", "ultra")
		return err
	})
}

// The database's copy has an empty identity, because a restore first writes an empty identity to
// the registry, and a mirror has copied it. When NATS then loses the registry, the executor
// restores it anyway, and the new identity shows that the registry was restored.
func TestACopyWithoutIdentityIsRestored(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	s := openStore(t)
	p := mustStart(t, server.Connect(t), s)
	p.workflow(t, "wf")
	p.stop()
	at, err := s.RegistryPosition(t.Context(), registry.Bucket)
	fatal(t, err)
	next := store.RegistryPosition{Revision: at.Revision + 1, At: time.Now()}
	empty := store.RegistryRecord{
		Bucket: registry.Bucket, Key: registry.InstallationKey, Revision: next.Revision,
	}
	fatal(t, s.SaveRegistryCopy(t.Context(), registry.Bucket, []store.RegistryRecord{empty}, nil,
		at.Revision, next))
	server.Stop()
	fatal(t, os.RemoveAll(server.StoreDir()))
	server.Restart()
	p = mustStart(t, server.Connect(t), s)
	identity, _, err := edit.ReadInstallation(t.Context(), p.js)
	fatal(t, err)
	if identity.RestoreID == "" {
		t.Error("nothing shows that the registry was restored")
	}
	p.token(t, "wf")
}

// silentServer provides an executor with a JetStream and a database. NATS never responds to one
// request for the registry's identity: the one that a restore makes immediately after it has read
// the position of the database's copy.
type silentServer struct {
	jetstream.JetStream
	store.Store
	silent *nats.Conn // a connection without a server; a request waits for its context
	once   sync.Once
	next   atomic.Bool // whether the next request goes to silent
	asked  atomic.Bool // whether a request has gone to silent
}

func (s *silentServer) RegistryPosition(
	ctx context.Context, bucket string,
) (store.RegistryPosition, error) {
	if bucket == registry.Bucket {
		s.once.Do(func() { s.next.Store(true) })
	}
	return s.Store.RegistryPosition(ctx, bucket)
}

func (s *silentServer) Conn() *nats.Conn {
	if s.next.CompareAndSwap(true, false) {
		s.asked.Store(true)
		return s.silent
	}
	return s.JetStream.Conn()
}

// If NATS never responds to one request of a restore, the restore is repeated and succeeds.
func TestARestoreOutlivesALostAnswer(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	db := openStore(t)
	p := mustStart(t, server.Connect(t), db)
	token := p.workflow(t, "wf")
	p.stop()
	server.Stop()
	fatal(t, os.RemoveAll(server.StoreDir()))
	server.Restart()
	away := natstest.Start(t)
	silent := away.Connect(t)
	away.Stop()
	nc := server.Connect(t)
	js, err := jetstream.New(nc)
	fatal(t, err)
	s := &silentServer{JetStream: js, Store: db, silent: silent}
	p, err = startWith(t, nc, s, s, false)
	fatal(t, err)
	if !s.asked.Load() {
		t.Error("every request was answered")
	}
	if p.token(t, "wf") != token {
		t.Error("it has another token")
	}
}

// An executor does not start if the registry has an identity, but the executor's database is empty
// or belongs to another installation. Otherwise, the records of one installation would be split
// between two databases.
func TestAnotherDatabaseIsRefused(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	s := openStore(t)
	mustStart(t, server.Connect(t), s)
	foreign, empty := openStore(t), openStore(t)
	_, err := foreign.AdoptInstallation(t.Context(), "another")
	fatal(t, err)
	for name, other := range map[string]store.Store{
		"another installation's": foreign,
		"an empty one":           empty,
	} {
		var refused *databasecopy.InstallationMismatchError
		if _, err := start(t, server.Connect(t), other, true); !errors.As(err, &refused) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if id, err := empty.Installation(t.Context()); err != nil || id != "" {
		t.Errorf("the empty database has the identity %q, %v", id, err)
	}
	mustStart(t, server.Connect(t), s)
}

// The registry and the database are from a version without identities. Both get the same new
// identity.
func TestAnInstallationFromBeforeGetsAnIdentity(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	nc := server.Connect(t)
	r := registrytest.Start(t, nc)
	token := r.CreateWorkflow(t, "old", "pro", true)
	kv, err := r.JetStream.KeyValue(t.Context(), registry.Bucket)
	fatal(t, err)
	fatal(t, kv.Purge(t.Context(), registry.InstallationKey))
	in := startIngress(t, nc)
	if in.lease.AwaitValid(time.Now()) {
		t.Error("an ingress relies on a registry without an identity")
	}
	s := openStore(t)
	p := mustStart(t, server.Connect(t), s)
	in.awaitAvailable(t, "old")
	if node, err := p.Trigger(t.Context(), "old", "node"); err != nil ||
		node.Tokens[0].Token != token {
		t.Errorf("it has another token, %v", err)
	}
	// After NATS has lost its storage, both workflows are restored: the copy also has the one that
	// was created before the registry had an identity.
	p.workflow(t, "new")
	server.Stop()
	fatal(t, os.RemoveAll(server.StoreDir()))
	server.Restart()
	in.awaitUnavailable(t, "old", "new")
	in.awaitAvailable(t, "old", "new")
}

// A change is confirmed only when the database's copy of the registry has it. While no executor
// mirrors the registry to the database, no change is confirmed.
func TestAChangeIsConfirmedWhenTheCopyHasIt(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	s := openStore(t)
	p, err := start(t, server.Connect(t), s, false)
	fatal(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	var unconfirmed *consistency.UnconfirmedError
	if _, _, err := p.PutAccount(ctx, "acme", "", "ultra"); !errors.As(err, &unconfirmed) {
		t.Errorf("it is confirmed, and nothing copies it: %v", err)
	}
	mustStart(t, server.Connect(t), s) // this executor's mirror copies the change
	_, _, err = p.PutAccount(t.Context(), "acme", "", "ultra")
	fatal(t, err)
	if entries, err := s.ListAudit(t.Context(), store.AuditFilter{}, store.AuditPosition{},
		10); err != nil || len(entries) != 1 {
		t.Errorf("the audit has %d entries, %v", len(entries), err)
	}
}

// While a backup is being restored, no request is accepted, and no executor changes the registry.
// Afterwards, the database's copy contains the restored records.
func TestABackupIsRestoredUndisturbed(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	s := openStore(t)
	p := mustStart(t, server.Connect(t), s)
	in := startIngress(t, server.Connect(t))
	identity, over, err := edit.ReadInstallation(t.Context(), p.js)
	fatal(t, err)
	identity.Restoring = true
	restoring, err := edit.WriteInstallation(t.Context(), p.js, identity, over)
	fatal(t, err)
	fatal(t, in.follower.AwaitApplied(t.Context(), restoring))
	if in.lease.IsValid(time.Now()) {
		t.Error("the ingress relies on a registry that is incomplete")
	}
	in.awaitUnavailable(t)
	for begin := time.Now(); time.Since(begin) < 2*time.Second; {
		if now, _, err := edit.ReadInstallation(t.Context(), p.js); err != nil || !now.Restoring ||
			in.lease.IsValid(time.Now()) {
			t.Fatalf("it says %+v, %v", now, err)
		}
	}
	within, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	retry.Until(within, 10*time.Millisecond, func() bool { return p.copy.UnusableReason() != nil })
	if p.copy.UnusableReason() == nil {
		t.Error("an executor says nothing of it")
	}
	account := &registry.Account{ID: "restored", Plan: "ultra"}
	data, err := account.Encode()
	fatal(t, err)
	_, err = p.js.Publish(t.Context(), "$KV."+registry.Bucket+"."+registry.AccountPrefix+"restored",
		data)
	fatal(t, err)
	identity, over, err = edit.ReadInstallation(t.Context(), p.js)
	fatal(t, err)
	identity.Restoring = false
	_, err = edit.WriteInstallation(t.Context(), p.js, identity, over)
	fatal(t, err)
	in.awaitAvailable(t)
	p.workflow(t, "wf")

	server.Stop() // the copy must now have the restored records
	fatal(t, os.RemoveAll(server.StoreDir()))
	server.Restart()
	in.awaitUnavailable(t, "wf")
	in.awaitAvailable(t, "wf")
	mustBecomeCurrent(t, p.EnsureCurrent)
	if _, ok := p.index.Account("restored"); !ok {
		t.Error("what a backup has restored is gone")
	}
}
