package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/executor/pgtest"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
)

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// Three actors make more than 500 changes through two executors, one of which is killed five times.
// Each confirmed change is in the audit log exactly once. An unconfirmed change took effect if and
// only if it is in the audit log.
func TestEveryChangeIsInTheAuditOnce(t *testing.T) {
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		auditOnce(t, "sqlite:"+filepath.Join(t.TempDir(), "executions.db"))
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		auditOnce(t, pgtest.StartServer(t).URL())
	})
}

// auditOnce runs TestEveryChangeIsInTheAuditOnce with the database that has the given URL.
func auditOnce(t *testing.T, database string) {
	t.Helper()
	const perActor, kills, perKill = 167, 5, 30
	nats := natstest.Start(t)
	start := func() (*process, string) {
		p := launch(t, "executor", "--addr=127.0.0.1:0", "--ops-addr=127.0.0.1:0",
			"--nats-url="+nats.URL(), "--database-url="+database, "--admin-token="+adminToken)
		return p, "http://" + p.Await(`"addr":"([^"]+)".*executor is ready`)
	}
	_, steady := start()
	admin := apiclient.New(steady, adminToken)
	for n := range 3 {
		makeWorkflow(t, admin, fmt.Sprint("workflow-", n))
		if _, err := admin.SetSamplePayload(t.Context(), fmt.Sprint("workflow-", n), "node",
			[]byte(`{"a":1}`)); err != nil {
			t.Fatal(err)
		}
	}
	secrets := []string{adminToken}
	tokens := []string{adminToken}
	for n := range 2 {
		key, err := admin.CreateKey(t.Context(), api.PutKey{
			Name: fmt.Sprint("CI ", n),
			Role: "editor",
		})
		if err != nil {
			t.Fatal(err)
		}
		tokens, secrets = append(tokens, key.Secret), append(secrets, key.Secret)
	}
	killed, address := start()
	var (
		at     sync.RWMutex // guards address
		served atomic.Int64 // changes confirmed by the killed executor or its predecessors
	)
	killing := make(chan struct{})
	go func() {
		defer close(killing)
		for range kills {
			// Kill after a fixed number of changes instead of a fixed time, because the speed of
			// the machine determines how many changes are made in that time.
			reach(t, &served, served.Load()+perKill)
			killed.Kill()
			p, where := start()
			at.Lock()
			killed, address = p, where
			at.Unlock()
		}
	}()

	// Each actor repeatedly renames its own workflow, through the two executors in turn, and
	// sometimes starts an execution of it.
	type change struct {
		name      string
		confirmed bool
	}
	changes := make([][]change, 3)
	started := make([]map[string]bool, 3) // IDs of the executions that each actor has started
	var working sync.WaitGroup
	for actor := range changes {
		working.Go(func() {
			id := fmt.Sprint("workflow-", actor)
			started[actor] = map[string]bool{}
			for n := 0; n < perActor || !isClosed(killing); n++ {
				base := steady
				if n%2 == 1 {
					at.RLock()
					base = address
					at.RUnlock()
				}
				name := fmt.Sprintf("name %d of %d", n, actor)
				_, err := apiclient.New(base, tokens[actor]).PutWorkflow(t.Context(), id,
					api.PutWorkflow{
						AccountID: "tests",
						Name:      name,
						Triggers:  []api.PutTrigger{{NodeID: "node"}},
					})
				changes[actor] = append(changes[actor], change{name, err == nil})
				if err == nil && n%2 == 1 {
					served.Add(1)
				}
				if n%10 > 1 {
					continue
				}
				if one, err := apiclient.New(base, tokens[actor]).RerunTrigger(t.Context(), id,
					"node"); err == nil {
					started[actor][one.ExecutionID] = true
				}
			}
		})
	}
	working.Wait()

	wantAllTaken(t, admin)
	entries := map[string]int{}
	reruns := map[string]api.AuditEntry{} // keyed by execution ID
	var last [3]string                    // newest name of each actor's workflow in the audit log
	all, seen := 0, map[string]bool{}
	for e := range auditEntries(t, admin) {
		all++
		if seen[e.ID] || e.At.IsZero() || e.Actor.Kind == "" {
			t.Errorf("%+v", e)
		}
		seen[e.ID] = true
		if e.Action == "execution.rerun" {
			reruns[e.ID] = e
		}
		text := fmt.Sprintf("%+v", e)
		for _, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("a secret is in the audit: %s", text)
			}
		}
		for _, c := range e.Changes {
			name, ok := c.To.(string)
			if c.Field != "name" || !ok || !strings.HasPrefix(name, "name ") {
				continue
			}
			entries[name]++
			var number, actor int
			if _, err := fmt.Sscanf(name, "name %d of %d", &number, &actor); err != nil {
				t.Fatal(err)
			}
			want := api.Actor{Kind: "key", Name: fmt.Sprint("CI ", actor-1)}
			if actor == 0 {
				want = api.Actor{Kind: "admin-token", Name: e.Actor.Name}
			}
			if e.Actor.Kind != want.Kind || e.Actor.Name != want.Name ||
				e.Action != "workflow.update" ||
				e.WorkflowID != fmt.Sprint("workflow-", actor) || e.AccountID != "tests" {
				t.Errorf("%+v, want %+v", e, want)
			}
			if last[actor] == "" {
				last[actor] = name
			}
		}
	}
	wantReruns(t, admin, reruns, started)
	confirmed, unconfirmed := 0, 0
	for actor, list := range changes {
		for _, c := range list {
			n := entries[c.name]
			if c.confirmed {
				confirmed++
			} else {
				unconfirmed++
			}
			if n > 1 || (c.confirmed && n != 1) {
				t.Errorf("%q, confirmed %v, is in the audit %d times", c.name, c.confirmed, n)
			}
		}
		// The newest change in the audit log is in effect, even if it was not confirmed.
		w, err := admin.Workflow(t.Context(), fmt.Sprint("workflow-", actor))
		if err != nil || w.Name != last[actor] {
			t.Errorf("%q is in force, %q is the newest in the audit, %v", w.Name, last[actor], err)
		}
	}
	if confirmed < 3*perActor/2 {
		t.Errorf("only %d changes were confirmed", confirmed)
	}
	t.Logf("%d changes confirmed, %d not, %d reruns, %d entries in all", confirmed, unconfirmed,
		len(reruns), all)
	if _, err := apiclient.New(steady, tokens[1]).Audit(t.Context(), apiclient.AuditFilter{},
		apiclient.Page{}); err == nil || !strings.Contains(err.Error(), "forbidden") {
		t.Errorf("an editor reads the audit: %v", err)
	}
}

// reach waits until *count is at least want.
func reach(t *testing.T, count *atomic.Int64, want int64) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(3 * time.Minute); count.Load() < want; <-tick.C {
		if time.Now().After(deadline) {
			t.Errorf("%d of %d changes were confirmed", count.Load(), want)
			return
		}
	}
}

// wantAllTaken waits until all earlier changes are in the audit log. It makes one more change of
// each kind, by creating a workflow and starting an execution, and waits until both are stored.
// Because changes of the same kind are stored in order, all earlier ones are stored by then.
func wantAllTaken(t *testing.T, admin *apiclient.Client) {
	t.Helper()
	makeWorkflow(t, admin, "the-end")
	last, err := admin.RerunTrigger(t.Context(), "workflow-0", "node")
	if err != nil {
		t.Fatal(err)
	}
	recorded := func() bool {
		_, err := admin.Execution(t.Context(), last.ExecutionID)
		return err == nil
	}
	audited := func() bool {
		list, err := admin.Audit(t.Context(), apiclient.AuditFilter{WorkflowID: "the-end"},
			apiclient.Page{Limit: 1})
		return err == nil && len(list.Items) == 1
	}
	for deadline := time.Now().
		Add(3 * time.Minute); time.Now().Before(deadline); <-time.After(50 * time.Millisecond) {
		if recorded() && audited() {
			return
		}
	}
	t.Fatal("what was done last is not in the audit")
}

// wantReruns checks that reruns has an entry for each recorded execution and for no other. reruns
// holds audit entries, keyed by execution ID. started[n] holds the IDs of the executions whose
// start was confirmed to actor n; their entries must name this actor.
func wantReruns(
	t *testing.T, admin *apiclient.Client, reruns map[string]api.AuditEntry,
	started []map[string]bool,
) {
	t.Helper()
	for actor, ids := range started {
		for id := range ids {
			e, ok := reruns[id]
			if want := fmt.Sprint("CI ", actor-1); !ok ||
				e.WorkflowID != fmt.Sprint("workflow-", actor) ||
				(actor > 0 && e.Actor.Name != want) ||
				(actor == 0 && e.Actor.Kind != "admin-token") {
				t.Errorf("%s by %d: %v, %+v", id, actor, ok, e)
			}
		}
	}
	recorded := 0
	for e := range executions(t, admin, apiclient.ExecutionFilter{}) {
		recorded++
		if _, ok := reruns[e.ExecutionID]; !ok {
			t.Errorf("%s is recorded, and not in the audit", e.ExecutionID)
		}
	}
	if recorded != len(reruns) || recorded < 50 {
		t.Errorf("%d executions, %d in the audit", recorded, len(reruns))
	}
}
