package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/executor/apiclient"
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

// 500 changes and more by three actors through two executors, of which one is killed five times: what was confirmed is in the
// audit exactly once; what was not is done if and only if it is in the audit.
func TestEveryChangeIsInTheAuditOnce(t *testing.T) {
	t.Parallel()
	const perActor, kills = 167, 5
	nats := natstest.Start(t)
	database := "sqlite:" + filepath.Join(t.TempDir(), "executions.db")
	start := func() (*process, string) {
		p := launch(t, "executor", "--addr=127.0.0.1:0", "--ops-addr=127.0.0.1:0", "--nats-url="+nats.URL(), "--database-url="+database, "--admin-token="+adminToken)
		return p, "http://" + p.Await(`"addr":"([^"]+)".*executor is ready`)
	}
	_, steady := start()
	admin := apiclient.New(steady, adminToken)
	for n := range 3 {
		makeWorkflow(t, admin, fmt.Sprint("workflow-", n))
	}
	secrets := []string{adminToken}
	tokens := []string{adminToken}
	for n := range 2 {
		key, err := admin.CreateKey(t.Context(), api.PutKey{Name: fmt.Sprint("CI ", n), Role: "editor"})
		if err != nil {
			t.Fatal(err)
		}
		tokens, secrets = append(tokens, key.Secret), append(secrets, key.Secret)
	}
	killed, address := start()
	var at sync.RWMutex // guards address
	killing := make(chan struct{})
	go func() {
		defer close(killing)
		for range kills {
			<-time.After(500 * time.Millisecond)
			killed.Kill()
			p, where := start()
			at.Lock()
			killed, address = p, where
			at.Unlock()
		}
	}()

	// Each actor gives its own workflow one name after the other, through the executors in turn.
	type change struct {
		name      string
		confirmed bool
	}
	changes := make([][]change, 3)
	var working sync.WaitGroup
	for actor := range changes {
		working.Go(func() {
			id := fmt.Sprint("workflow-", actor)
			for n := 0; n < perActor || !isClosed(killing); n++ {
				base := steady
				if n%2 == 1 {
					at.RLock()
					base = address
					at.RUnlock()
				}
				name := fmt.Sprintf("name %d of %d", n, actor)
				_, err := apiclient.New(base, tokens[actor]).PutWorkflow(t.Context(), id, api.PutWorkflow{AccountID: "tests", Name: name, Triggers: []api.PutTrigger{{NodeID: "node"}}})
				changes[actor] = append(changes[actor], change{name, err == nil})
			}
		})
	}
	working.Wait()

	entries := map[string]int{}
	var last [3]string // the newest name in the audit
	page, all := apiclient.Page{Limit: api.MaxLimit}, 0
	seen := map[string]bool{}
	for {
		list, err := admin.Audit(t.Context(), apiclient.AuditFilter{}, page)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list.Items {
			all++
			if seen[e.ID] || e.At.IsZero() || e.Actor.Kind == "" {
				t.Errorf("%+v", e)
			}
			seen[e.ID] = true
			text := fmt.Sprintf("%+v", e)
			for _, secret := range secrets {
				if strings.Contains(text, secret) {
					t.Errorf("a secret is in the audit: %s", text)
				}
			}
			for _, c := range e.Changes {
				name, is := c.To.(string)
				if c.Field != "name" || !is || !strings.HasPrefix(name, "name ") {
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
				if e.Actor.Kind != want.Kind || e.Actor.Name != want.Name || e.Action != "workflow.update" || e.WorkflowID != fmt.Sprint("workflow-", actor) || e.AccountID != "tests" {
					t.Errorf("%+v, want %+v", e, want)
				}
				if last[actor] == "" {
					last[actor] = name
				}
			}
		}
		if page.Cursor = list.NextCursor; page.Cursor == "" {
			break
		}
	}
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
		// The newest one in the audit is in force, whether it was confirmed or not.
		w, err := admin.Workflow(t.Context(), fmt.Sprint("workflow-", actor))
		if err != nil || w.Name != last[actor] {
			t.Errorf("%q is in force, %q is the newest in the audit, %v", w.Name, last[actor], err)
		}
	}
	if confirmed < 3*perActor/2 {
		t.Errorf("only %d changes were confirmed", confirmed)
	}
	t.Logf("%d changes confirmed, %d not, %d entries in all", confirmed, unconfirmed, all)
	if _, err := apiclient.New(steady, tokens[1]).Audit(t.Context(), apiclient.AuditFilter{}, apiclient.Page{}); err == nil || !strings.Contains(err.Error(), "forbidden") {
		t.Errorf("an editor reads the audit: %v", err)
	}
}
