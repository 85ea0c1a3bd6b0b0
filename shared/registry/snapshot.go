package registry

import (
	"hash/maphash"
	"maps"
	"sort"
	"sync"
	"sync/atomic"
	"unique"

	"github.com/hookstart/hookstart/shared/registry/seal"
	"github.com/hookstart/hookstart/shared/sender"
)

// Webhook is what a request needs to know of a workflow. It is immutable: a change replaces it.
type Webhook struct {
	ID         string
	AccountID  string
	Queue      string
	Active     bool
	Transition int64     // orders the active workflows of an account
	RateLimit  RateLimit // zero: the plan's
	Nodes      []Node
}

// Node is what a request needs to know of a webhook trigger node.
type Node struct {
	ID     string
	Tokens []NodeToken
	// Sender verifies the node's requests. nil: the token alone decides, unless Unusable is set.
	Sender *sender.Sender
	// Unusable is why requests of the node cannot be verified: this process cannot decrypt its sender's secrets. Such a
	// node must refuse every request.
	Unusable error
}

// View is all that a request needs to know of its workflow.
type View struct {
	Workflow *Webhook
	Plan     *Plan // nil: the account or its plan is unknown, and nothing is allowed
	// WithinPlan reports whether the plan lets the workflow be active.
	WithinPlan bool
}

// PlanHasWebhooks reports whether the plan has webhook triggers.
func (v View) PlanHasWebhooks() bool { return v.Plan != nil && v.Plan.WebhookTriggers }

// Limit is the rate limit in force.
func (v View) Limit() RateLimit {
	if v.Workflow.RateLimit.Requests > 0 {
		return v.Workflow.RateLimit
	}
	return v.Plan.RateLimit
}

// account is what a request needs to know of an account. It is immutable.
type account struct {
	plan *Plan
	// allowed are the workflows that the plan lets be active; nil: all.
	allowed map[string]struct{}
}

// Snapshot is the registry in memory. Lookup takes no lock. When the bucket was recreated or restored, a new copy is
// loaded beside the current one, and then replaces it as a whole.
type Snapshot struct {
	current atomic.Pointer[tables] // Lookup reads it

	mu      sync.Mutex
	filling *tables // changes are applied to it: current, except while another copy is loaded
	keys    *seal.Keys
}

// tables are the records of one snapshot. Lookup's maps are split into shards, and a change replaces the shard of its
// key: a write copies one shard, about 10 µs with a million workflows, and a read takes no lock.
type tables struct {
	workflows shards[*Webhook]
	accounts  shards[*account]

	// For writers only, guarded by Snapshot.mu. Lookup does not read these.
	loading bool
	plans   Plans
	planOf  map[string]string           // account → plan ID
	active  map[string]map[string]int64 // account → active workflow → transition
	// unusable has the workflows with an unusable sender, and why it is (see Node.Unusable).
	unusable map[string]error
	keys     *seal.Keys // open senders' secrets
}

// NewSnapshot returns an empty snapshot. Lookup finds nothing before Loaded is called. keys open senders' secrets; nil:
// there are none.
func NewSnapshot(keys *seal.Keys) *Snapshot {
	s := &Snapshot{filling: newTables(keys), keys: keys}
	s.current.Store(s.filling)
	return s
}

func newTables(keys *seal.Keys) *tables {
	t := &tables{
		loading:  true,
		planOf:   map[string]string{},
		active:   map[string]map[string]int64{},
		unusable: map[string]error{},
		keys:     keys,
	}
	t.workflows.init()
	t.accounts.init()
	return t
}

// Lookup finds a workflow.
func (s *Snapshot) Lookup(workflowID string) (View, bool) { return s.current.Load().lookup(workflowID) }

// PlanOf is an account's plan, nil if it is not known.
func (s *Snapshot) PlanOf(accountID string) *Plan {
	if a, found := s.current.Load().accounts.get(accountID); found {
		return a.plan
	}
	return nil
}

// Len is the number of workflows.
func (s *Snapshot) Len() int { return s.current.Load().workflows.len() }

// ActiveBesides counts an account's active workflows other than the given one.
func (s *Snapshot) ActiveBesides(accountID, workflowID string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	active := s.current.Load().active[accountID]
	count := int64(len(active))
	if _, counted := active[workflowID]; counted {
		count--
	}
	return count
}

// Unusable counts the workflows with an unusable sender, and returns the reason of one of them.
func (s *Snapshot) Unusable() (count int, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	unusable := s.current.Load().unusable
	for _, why = range unusable {
		break
	}
	return len(unusable), why
}

// Apply implements agree.Sink.
func (s *Snapshot) Apply(c Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.filling.apply(c)
}

// Loaded implements agree.Sink.
func (s *Snapshot) Loaded() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.filling.loaded()
	s.current.Store(s.filling)
}

// Reset implements agree.Sink.
func (s *Snapshot) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.filling = newTables(s.keys)
}

func (t *tables) lookup(workflowID string) (View, bool) {
	for {
		w, found := t.workflows.get(workflowID)
		if !found {
			return View{}, false
		}
		view := t.viewOf(w)
		if view.WithinPlan || !w.Active {
			return view, true
		}
		// It is past its plan's limit, or was switched off or deleted between the two reads.
		if again, _ := t.workflows.get(workflowID); again == w {
			return view, true
		}
	}
}

func (t *tables) viewOf(w *Webhook) View {
	view := View{Workflow: w}
	if a, found := t.accounts.get(w.AccountID); found {
		view.Plan = a.plan
		view.WithinPlan = a.allowed == nil
		if !view.WithinPlan {
			_, view.WithinPlan = a.allowed[w.ID]
		}
	}
	return view
}

func (t *tables) apply(c Change) {
	switch {
	case c.Plans != nil:
		t.plans = c.Plans
		for accountID := range t.planOf {
			t.refresh(accountID)
		}
	case c.Account != nil:
		t.planOf[c.Account.ID] = c.Account.Plan
		t.refresh(c.Account.ID)
	case c.DeletedAccount != "":
		delete(t.planOf, c.DeletedAccount)
		t.accounts.remove(c.DeletedAccount)
	case c.Workflow != nil:
		t.setWorkflow(t.webhookOf(c.Workflow))
	case c.DeletedWorkflow != "":
		if before, existed := t.workflows.last(c.DeletedWorkflow); existed {
			t.workflows.remove(c.DeletedWorkflow)
			delete(t.unusable, c.DeletedWorkflow)
			t.setActive(before, false)
		}
	}
}

func (t *tables) loaded() {
	t.loading = false
	for accountID := range t.planOf {
		t.refresh(accountID)
	}
	t.accounts.publish() // first: a lookup that finds a workflow must find its account
	t.workflows.publish()
}

func (t *tables) setWorkflow(w *Webhook) {
	if before, existed := t.workflows.last(w.ID); existed && before.AccountID != w.AccountID {
		t.setActive(before, false)
	}
	// A lookup that finds an active workflow must find it within its plan. So the account is updated before an activation,
	// and after a deactivation.
	if w.Active {
		t.setActive(w, true)
	}
	t.workflows.set(w.ID, w)
	if !w.Active {
		t.setActive(w, false)
	}
}

func (t *tables) setActive(w *Webhook, active bool) {
	of := t.active[w.AccountID]
	number, was := of[w.ID]
	if was == active && (!active || number == w.Transition) {
		return
	}
	if active {
		if of == nil {
			of = map[string]int64{}
			t.active[w.AccountID] = of
		}
		of[w.ID] = w.Transition
	} else {
		delete(of, w.ID)
		if len(of) == 0 {
			delete(t.active, w.AccountID)
		}
	}
	t.refresh(w.AccountID)
}

// refresh recomputes which workflows of an account the plan lets be active: those that were activated first.
func (t *tables) refresh(accountID string) {
	planID, exists := t.planOf[accountID]
	if t.loading || !exists {
		return
	}
	a := &account{plan: t.plans.Find(planID)}
	if a.plan != nil && a.plan.MaxActive != Unlimited {
		active := t.active[accountID]
		first := make([]string, 0, len(active))
		for id := range active {
			first = append(first, id)
		}
		sort.Slice(first, func(i, j int) bool {
			if x, y := active[first[i]], active[first[j]]; x != y {
				return x < y
			}
			return first[i] < first[j]
		})
		a.allowed = map[string]struct{}{}
		for _, id := range first[:min(len(first), int(a.plan.MaxActive))] {
			a.allowed[id] = struct{}{}
		}
	}
	t.accounts.set(accountID, a)
}

// webhookOf makes a Webhook of a workflow's record.
func (t *tables) webhookOf(r *Workflow) *Webhook {
	// Most workflows have one node with one token: they take one allocation. Strings that many workflows share are stored
	// once.
	whole := &struct {
		Webhook
		node  [1]Node
		token [1]NodeToken
	}{}
	whole.Webhook = Webhook{
		ID: r.ID, AccountID: shared(r.AccountID), Queue: shared(r.Queue),
		Active: r.Active, Transition: r.Transition, RateLimit: r.RateLimit,
		Nodes: whole.node[:0],
	}
	w, tokens := &whole.Webhook, whole.token[:0]
	delete(t.unusable, w.ID)
	for _, trigger := range r.Triggers {
		node := Node{ID: shared(trigger.NodeID), Tokens: append(tokens, trigger.Tokens...)}
		tokens = nil // the room is for the first node
		if trigger.Sender != nil {
			// Compiled once per revision, and not per request.
			if node.Sender, node.Unusable = compileSender(t.keys, w.ID, node.ID, trigger.Sender); node.Unusable != nil {
				t.unusable[w.ID] = node.Unusable
			}
		}
		w.Nodes = append(w.Nodes, node)
	}
	return w
}

// shared interns a string.
func shared(text string) string { return unique.Make(text).Value() }

const shardCount = 4096

// shards is a map for many readers and one writer.
type shards[V any] struct {
	seed      maphash.Seed
	published atomic.Bool // before that, the writer fills the maps in place, and readers find nothing
	shard     [shardCount]atomic.Pointer[map[string]V]
}

func (s *shards[V]) init() {
	s.seed = maphash.MakeSeed()
	for i := range s.shard {
		s.shard[i].Store(&map[string]V{})
	}
}

func (s *shards[V]) of(key string) *atomic.Pointer[map[string]V] {
	return &s.shard[maphash.String(s.seed, key)%shardCount]
}

func (s *shards[V]) get(key string) (v V, found bool) {
	if !s.published.Load() {
		return v, false
	}
	return s.last(key)
}

// last returns the writer's value, published or not.
func (s *shards[V]) last(key string) (V, bool) {
	v, found := (*s.of(key).Load())[key]
	return v, found
}

func (s *shards[V]) set(key string, v V) {
	shard := s.of(key)
	m := *shard.Load()
	if s.published.Load() {
		m = maps.Clone(m)
	}
	m[key] = v
	shard.Store(&m)
}

func (s *shards[V]) remove(key string) {
	shard := s.of(key)
	m := *shard.Load()
	if s.published.Load() {
		m = maps.Clone(m)
	}
	delete(m, key)
	shard.Store(&m)
}

func (s *shards[V]) publish() { s.published.Store(true) }

func (s *shards[V]) len() int {
	n := 0
	if !s.published.Load() {
		return n
	}
	for i := range s.shard {
		n += len(*s.shard[i].Load())
	}
	return n
}
