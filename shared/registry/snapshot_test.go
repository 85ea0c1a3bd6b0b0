package registry_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/registry/seal"
)

// Until FinishLoad is called, Lookup finds no workflow. From then on it finds every workflow,
// together with its account and plan. This matters because an ingress already uses the snapshot
// while it is still loading the registry, for example for its metrics.
func TestNothingIsFoundUntilLoaded(t *testing.T) {
	snapshot := registry.NewSnapshot(nil)
	const workflows = 2000
	last := "wf-" + strconv.Itoa(workflows-1)
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				view, ok := snapshot.Lookup(last)
				if ok && (view.Plan == nil || !view.WithinPlan) {
					t.Errorf("found without its account: %+v", view)
				}
				if snapshot.WorkflowCount() == workflows && ok {
					return
				}
			}
		})
	}
	plans, err := edit.ParsePlans(edit.DefaultPlansJSON)
	if err != nil {
		t.Fatal(err)
	}
	for i := range workflows {
		id := strconv.Itoa(i)
		snapshot.Apply(registry.Change{Account: &registry.Account{ID: "a" + id, Plan: "pro"}})
		snapshot.Apply(registry.Change{
			Workflow: &registry.Workflow{
				ID:         "wf-" + id,
				AccountID:  "a" + id,
				Active:     true,
				Transition: 1,
			},
		})
	}
	snapshot.Apply(registry.Change{Plans: plans})
	if _, ok := snapshot.Lookup(last); ok || snapshot.WorkflowCount() != 0 {
		t.Error("something is found before everything is")
	}
	snapshot.FinishLoad()
	readers.Wait()
}

// Earlier versions accepted an order key that is taken from the header with the sender's secret. If
// such an order key is still stored, it is ignored, because operators can see order keys. The
// sender still verifies requests with the secret.
func TestStoredOrderKeyInASecretHeader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte(seal.NewKeyLine()), 0o600); err != nil {
		t.Fatal(err)
	}
	keys, err := seal.ReadKeyFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := keys.Seal([]byte("secret"), registry.SenderSecretSealPurpose("wf", "node", "1"))
	if err != nil {
		t.Fatal(err)
	}
	for place, want := range map[string]bool{
		"header:x-api-key": false, "header:X-Tenant": true, "ptr:/customer": true,
	} {
		snapshot := registry.NewSnapshot(keys)
		snapshot.Apply(registry.Change{Account: &registry.Account{ID: "a", Plan: "pro"}})
		snapshot.Apply(registry.Change{Workflow: &registry.Workflow{
			ID: "wf", AccountID: "a", Active: true, Transition: 1,
			Triggers: []registry.Trigger{{NodeID: "node", OrderKey: place, Sender: &registry.Sender{
				Preset: "header", Settings: map[string]string{"header": "X-Api-Key"},
				Secrets: []registry.SenderSecret{{ID: "1", SealedText: sealed}},
			}}},
		}})
		snapshot.FinishLoad()
		view, ok := snapshot.Lookup("wf")
		if !ok {
			t.Fatal("there is no workflow")
		}
		if node := view.Workflow.Nodes[0]; node.UnusableReason != nil || node.Sender == nil ||
			(node.OrderKey != nil) != want {
			t.Errorf("%s: %+v", place, node)
		}
	}
}

// The plan allows only one active workflow. While that workflow is activated, deactivated, deleted
// and created again, no lookup reports that it exceeds the plan's limit.
func TestTheOnlyActiveWorkflowIsNeverPastThePlan(t *testing.T) {
	t.Parallel()
	s := registry.NewSnapshot(nil)
	plans, err := edit.ParsePlans(edit.DefaultPlansJSON)
	if err != nil {
		t.Fatal(err)
	}
	s.Apply(registry.Change{Plans: plans})
	s.Apply(registry.Change{Account: &registry.Account{ID: "account", Plan: "free"}})
	s.FinishLoad()
	var switching sync.WaitGroup
	switching.Go(func() {
		for n := range int64(50_000) {
			s.Apply(registry.Change{
				Workflow: &registry.Workflow{
					ID:         "wf",
					AccountID:  "account",
					Active:     true,
					Transition: n,
				},
			})
			if n%2 == 0 {
				s.Apply(registry.Change{
					Workflow: &registry.Workflow{ID: "wf", AccountID: "account", Transition: n},
				})
			} else {
				s.Apply(registry.Change{DeletedWorkflow: "wf"})
			}
		}
	})
	defer switching.Wait()
	for range 2_000_000 {
		if view, ok := s.Lookup("wf"); ok && view.Workflow.Active && !view.WithinPlan {
			t.Fatal("it is active and past the plan's limit")
		}
	}
}

// The plan allows the active workflows that were activated first, up to its limit. This must hold
// after any sequence of random changes: workflows are activated, deactivated, moved to another
// account or deleted, and accounts change their plans.
func TestThePlanLetsTheFirstBeActive(t *testing.T) {
	t.Parallel()
	const accounts, workflows, steps = 3, 20, 5000
	s := registry.NewSnapshot(nil)
	s.Apply(registry.Change{
		Plans: registry.Plans{
			{ID: "some", MaxActive: 3}, {ID: "none"}, {ID: "all", MaxActive: registry.Unlimited},
		},
	})
	maxActive := map[string]int{"some": 3, "none": 0, "all": workflows}
	random := rand.New(rand.NewPCG(1, 2))
	accountOf := func() string { return "a" + strconv.Itoa(random.IntN(accounts)) }
	plans, records := map[string]string{}, map[string]*registry.Workflow{}
	change := func(transition int64) registry.Change {
		id := "wf-" + strconv.Itoa(random.IntN(workflows))
		switch random.IntN(10) {
		case 0:
			id, plan := accountOf(), []string{"some", "none", "all"}[random.IntN(3)]
			plans[id] = plan
			return registry.Change{Account: &registry.Account{ID: id, Plan: plan}}
		case 1:
			delete(records, id)
			return registry.Change{DeletedWorkflow: id}
		default:
			w := &registry.Workflow{
				ID:         id,
				AccountID:  accountOf(),
				Active:     random.IntN(3) > 0,
				Transition: transition / 2,
			}
			records[id] = w
			return registry.Change{Workflow: w}
		}
	}
	check := func() {
		active := map[string][]*registry.Workflow{}
		for _, w := range records {
			if w.Active {
				active[w.AccountID] = append(active[w.AccountID], w)
			}
		}
		for accountID, list := range active {
			slices.SortFunc(list, func(a, b *registry.Workflow) int {
				return cmp.Or(cmp.Compare(a.Transition, b.Transition), cmp.Compare(a.ID, b.ID))
			})
			for i, w := range list {
				view, found := s.Lookup(w.ID)
				plan, known := plans[accountID]
				if want := known && i < maxActive[plan]; !found || !view.Workflow.Active ||
					view.WithinPlan != want {
					t.Fatalf("%s, number %d of the account on plan %q: found %v, within the "+
						"plan: %v, want %v", w.ID, i, plan, found, view.WithinPlan, want)
				}
			}
			if n := s.OtherActiveWorkflowCount(accountID, list[0].ID); n != int64(len(list)-1) {
				t.Fatalf("%d besides one of %d", n, len(list))
			}
		}
	}
	for n := range int64(steps) {
		s.Apply(change(n))
		switch {
		case n == steps/10:
			s.FinishLoad()
		case n > steps/10:
			check()
		}
	}
}

// BenchmarkLookup measures how long it takes to look up one workflow among a million. An ingress
// does this for every request.
func BenchmarkLookup(b *testing.B) {
	s := registry.NewSnapshot(nil)
	s.Apply(registry.Change{
		Plans: registry.Plans{{ID: "pro", WebhookTriggers: true, MaxActive: registry.Unlimited}},
	})
	s.Apply(registry.Change{Account: &registry.Account{ID: "a", Plan: "pro"}})
	ids := make([]string, 1_000_000)
	for i := range ids {
		ids[i] = "workflow-" + strconv.Itoa(i)
		s.Apply(registry.Change{
			Workflow: &registry.Workflow{ID: ids[i], AccountID: "a", Active: true},
		})
	}
	s.FinishLoad()
	rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		if view, ok := s.Lookup(ids[n%len(ids)]); !ok || !view.WithinPlan {
			b.Fatal(view)
		}
	}
}

// DecryptionCounts counts what can be decrypted by value: a key that opens the secrets of one node
// of a workflow is of use, and every key that is missing is named.
func TestDecryptionCountsOfAWorkflowWithSeveralKeys(t *testing.T) {
	t.Parallel()
	lines := []string{seal.NewKeyLine(), seal.NewKeyLine(), seal.NewKeyLine()}
	w := &registry.Workflow{ID: "wf", AccountID: "a"}
	var missing []string
	for i, line := range lines {
		node := fmt.Sprint("node-", i)
		sealed, err := keysOf(t, line).Seal([]byte("secret"),
			registry.SenderSecretSealPurpose("wf", node, "1"))
		if err != nil {
			t.Fatal(err)
		}
		w.Triggers = append(w.Triggers, registry.Trigger{NodeID: node, Sender: &registry.Sender{
			Preset: "header", Settings: map[string]string{"header": "X-Api-Key"},
			Secrets: []registry.SenderSecret{{ID: "1", SealedText: sealed}},
		}})
		if id, _, _ := strings.Cut(line, ":"); i != 1 {
			missing = append(missing, id)
		}
	}
	slices.Sort(missing)
	keys := keysOf(t, lines[1])
	snapshot := registry.NewSnapshot(keys)
	snapshot.Apply(registry.Change{Workflow: w})
	snapshot.FinishLoad()
	counts := snapshot.DecryptionCounts()
	if counts.Decryptable != 1 || counts.Undecryptable != 2 ||
		!slices.Equal(counts.MissingKeyIDs, missing) || counts.CheckAnyDecrypted(keys) != nil {
		t.Errorf("%+v, missing %v, %v", counts, missing, counts.CheckAnyDecrypted(keys))
	}
	snapshot.Apply(registry.Change{DeletedWorkflow: "wf"})
	if counts = snapshot.DecryptionCounts(); counts.Decryptable+counts.Undecryptable != 0 {
		t.Errorf("after the workflow was deleted: %+v", counts)
	}
}
