package registry

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hookstart/hookstart/shared/filter"
	"github.com/hookstart/hookstart/shared/registry/seal"
	"github.com/hookstart/hookstart/shared/sender"
)

// Webhook is the part of a workflow that is needed to handle a request. It is immutable: a change
// replaces it.
type Webhook struct {
	ID         string
	AccountID  string
	Queue      string
	Active     bool      // as recorded, regardless of the plan
	index      uint32    // index in accountWriterState.active; for the writer only
	Transition int64     // orders the active workflows of an account
	RateLimit  RateLimit // zero means the plan's rate limit
	Nodes      []TriggerNode
	gate       workflowGate // determines where the workflow's start messages are stored
}

func (w *Webhook) key() string { return w.ID }

// compare orders an account's active workflows by the time of their activation, earliest first.
func (w *Webhook) compare(other *Webhook) int {
	return cmp.Or(cmp.Compare(w.Transition, other.Transition), cmp.Compare(w.ID, other.ID))
}

// TriggerNode is the part of a webhook trigger node that is needed to handle a request.
type TriggerNode struct {
	ID     string
	Tokens []HashedToken // newest first; expired tokens may still be among them
	// Sender verifies the node's requests. If it is nil, only the token is checked, unless Unusable
	// is set.
	Sender *sender.Sender
	// Filter selects the requests that start an execution. If it is nil, every request does, unless
	// Unusable is set.
	Filter *filter.Filter
	// OrderKey identifies where a request contains its order key. If it is nil, the executions are
	// not ordered, unless Unusable is set.
	OrderKey *filter.OrderKey
	// Answer makes the response to a request wait until its execution has finished. nil means that
	// the response does not wait.
	Answer *SyncResponse
	// Unusable is the reason why the node cannot handle requests: this process cannot decrypt the
	// secrets of its sender, or cannot interpret its sender, its filter or its order key. Such a
	// node must refuse every request. nil means that the node is usable.
	Unusable error
}

// WorkflowView is a workflow and its account's plan, as needed to handle a request.
type WorkflowView struct {
	Workflow *Webhook
	Plan     *Plan // nil means that the account or its plan is unknown, and nothing is allowed
	// WithinPlan reports whether the plan allows the workflow to be active.
	WithinPlan bool
}

// PlanHasWebhooks reports whether the plan allows webhook triggers. It returns false if Plan is
// nil.
func (v WorkflowView) PlanHasWebhooks() bool { return v.Plan != nil && v.Plan.WebhookTriggers }

// Limit returns the rate limit in force, or the zero RateLimit if the workflow has none and Plan is
// nil.
func (v WorkflowView) Limit() RateLimit {
	switch {
	case v.Workflow.RateLimit.Requests > 0:
		return v.Workflow.RateLimit
	case v.Plan == nil:
		return RateLimit{}
	}
	return v.Plan.RateLimit
}

// accountView is the part of an account that is needed to handle a request. It is immutable.
type accountView struct {
	id   string
	plan *Plan // nil means that the account's plan is not in the catalog
	// limited reports whether the plan limits the number of active workflows. If it does, the next
	// field is the last workflow that the plan allows, in the order of activation, or nil if it
	// allows none.
	limited bool
	last    *Webhook
}

func (a *accountView) key() string { return a.id }

// allows reports whether the plan allows w to be active. If the plan limits the number of active
// workflows, it returns false for an inactive one.
func (a *accountView) allows(w *Webhook) bool {
	return !a.limited || a.last != nil && w.Active && w.compare(a.last) <= 0
}

// accountWriterState is the state of an account from which the writer computes the accountView that
// Lookup reads.
type accountWriterState struct {
	id     string
	known  bool       // whether the account has a record; otherwise only workflows refer to it
	plan   string     // the ID of the account's plan
	active []*Webhook // the active workflows, in no particular order
}

// Snapshot is the registry in memory. Lookup takes no lock. When the bucket has been recreated or
// restored, a new copy is loaded separately, and then replaces the current copy in one step.
type Snapshot struct {
	current atomic.Pointer[tables] // read by Lookup

	mu sync.Mutex
	// filling holds the tables to which changes are applied. They are the same as current, except
	// while another copy is being loaded.
	filling *tables
	keys    *seal.Keys   // decrypt senders' secrets
	drains  pendingMoves // the changes that have been applied but are not yet in force
}

// tables holds the records of one snapshot. The maps that Lookup reads are split into shards. A
// change replaces the shard of its key: it copies that shard, which takes about 10 µs with a
// million workflows. Readers take no lock.
type tables struct {
	workflows shardedMap[*Webhook]
	accounts  shardedMap[*accountView]

	// The following fields are only for writers, which hold Snapshot.mu. Lookup does not read them.
	loading bool
	plans   Plans
	owners  map[string]*accountWriterState // by account ID
	texts   map[string]string              // strings that many records share: see intern
	// unusable holds, for each workflow with an unusable sender, the reason (see
	// TriggerNode.Unusable).
	unusable map[string]error
	// opened holds the workflows whose senders have encrypted secrets that could all be decrypted.
	opened map[string]struct{}
	queues map[string]*queueGate // the queues named by workflows or records
	keys   *seal.Keys            // decrypt senders' secrets

	// own holds the names of the queues that have their own streams. It is replaced at each change,
	// so readers take no lock.
	own atomic.Pointer[[]string]
}

// NewSnapshot returns an empty snapshot. Lookup finds nothing until FinishLoad has been called.
// keys decrypts senders' secrets; nil means that there are no keys.
func NewSnapshot(keys *seal.Keys) *Snapshot {
	s := &Snapshot{filling: newTables(keys), keys: keys}
	s.current.Store(s.filling)
	return s
}

func newTables(keys *seal.Keys) *tables {
	t := &tables{
		loading:  true,
		owners:   map[string]*accountWriterState{},
		texts:    map[string]string{},
		unusable: map[string]error{},
		opened:   map[string]struct{}{},
		queues:   map[string]*queueGate{},
		keys:     keys,
	}
	t.own.Store(&[]string{})
	t.workflows.init()
	t.accounts.init()
	return t
}

// Lookup returns the workflow and its account's plan, and reports whether the workflow exists.
func (s *Snapshot) Lookup(workflowID string) (WorkflowView, bool) {
	return s.current.Load().lookup(workflowID)
}

// PlanOf returns the plan of an account, or nil if the account or its plan is unknown.
func (s *Snapshot) PlanOf(accountID string) *Plan {
	if a, ok := s.current.Load().accounts.get(accountID); ok {
		return a.plan
	}
	return nil
}

// AccountCount returns the number of accounts, or 0 before the registry is loaded.
func (s *Snapshot) AccountCount() int { return s.current.Load().accounts.len() }

// WorkflowCount returns the number of workflows, or 0 before the registry is loaded.
func (s *Snapshot) WorkflowCount() int { return s.current.Load().workflows.len() }

// OtherActiveCount returns the number of the account's active workflows, not counting the given
// one.
func (s *Snapshot) OtherActiveCount(accountID, workflowID string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.current.Load()
	o := t.owners[accountID]
	if o == nil {
		return 0
	}
	count := int64(len(o.active))
	if w, ok := t.workflows.latest(workflowID); ok && w.Active && w.AccountID == accountID {
		count--
	}
	return count
}

// UnusableSenders returns the number of workflows with an unusable sender, and the reason for one
// of them.
func (s *Snapshot) UnusableSenders() (count int, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	unusable := s.current.Load().unusable
	for _, why = range unusable {
		break
	}
	return len(unusable), why
}

// DecryptionCounts counts the workflows whose senders have encrypted secrets. A workflow counts as
// decryptable only if the keys can decrypt all of these secrets.
func (s *Snapshot) DecryptionCounts() (found DecryptionCounts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.current.Load()
	for _, why := range now.unusable {
		found.Count(why)
	}
	found.Opened = len(now.opened)
	return found
}

// Apply implements consistency.Sink.
func (s *Snapshot) Apply(c Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.filling.apply(c) {
		s.drains.trackMove(q, c.Revision)
	}
}

// Pending implements consistency.PendingReporter. The changes from revision since on are not in
// force yet, because requests that began before them are still storing messages. since is 0 if all
// changes are in force.
func (s *Snapshot) Pending() (since uint64, settled <-chan struct{}) {
	return s.drains.oldest()
}

// FinishLoad implements consistency.Sink.
func (s *Snapshot) FinishLoad() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.filling.publish()
	before := s.current.Swap(s.filling)
	if before == s.filling {
		return
	}
	for w := range before.workflows.values() {
		w.gate.supersede()
	}
	// The gates of the earlier copy count the requests that are still storing a message according
	// to that copy. No change in the new copy is in force until these requests have finished.
	for _, q := range before.queues {
		s.drains.trackMove(q, 1)
	}
}

// Reset implements consistency.Sink.
func (s *Snapshot) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.filling = newTables(s.keys)
}

func (t *tables) lookup(workflowID string) (WorkflowView, bool) {
	for {
		w, ok := t.workflows.get(workflowID)
		if !ok {
			return WorkflowView{}, false
		}
		view := t.newView(w)
		if view.WithinPlan || !w.Active {
			return view, true
		}
		// Either the workflow exceeds its plan's limit, or it was deactivated or deleted after it
		// was read and before its account was. If it is still the same, it exceeds the limit.
		if again, _ := t.workflows.get(workflowID); again == w {
			return view, true
		}
	}
}

func (t *tables) newView(w *Webhook) WorkflowView {
	view := WorkflowView{Workflow: w}
	if a, ok := t.accounts.get(w.AccountID); ok {
		view.Plan, view.WithinPlan = a.plan, a.allows(w)
	}
	return view
}

// apply applies a change. It returns the queues for which requests may still be storing messages
// according to the previous state.
func (t *tables) apply(c Change) (moved []*queueGate) {
	switch {
	case c.Plans != nil:
		t.plans = c.Plans
		t.recomputeAllAccounts()
	case c.Account != nil:
		o := t.ensureAccountState(c.Account.ID)
		o.known, o.plan = true, t.intern(c.Account.Plan)
		t.recomputeAllowedWorkflows(c.Account.ID)
	case c.DeletedAccount != "":
		t.ensureAccountState(c.DeletedAccount).known = false
		t.dropEmptyAccountState(c.DeletedAccount)
		t.accounts.remove(c.DeletedAccount)
	case c.Workflow != nil:
		return t.setWorkflow(t.webhookOf(c.Workflow))
	case c.Queue != nil:
		q := t.gateOf(c.Queue.Name)
		t.noteOwn(c.Queue.Name, c.Queue.Stream != nil)
		if q.setTarget(c.Queue) {
			return []*queueGate{q}
		}
	case c.DeletedWorkflow != "":
		if before, existed := t.workflows.latest(c.DeletedWorkflow); existed {
			t.workflows.remove(c.DeletedWorkflow)
			delete(t.unusable, c.DeletedWorkflow)
			delete(t.opened, c.DeletedWorkflow)
			t.removeFromActive(before)
			before.gate.supersede()
		}
	}
	return nil
}

// publish makes the loaded tables visible to Lookup.
func (t *tables) publish() {
	t.loading = false
	t.recomputeAllAccounts()
	// Publish the accounts first: a lookup that finds a workflow must also find its account.
	t.accounts.publish()
	t.workflows.publish()
}

func (t *tables) setWorkflow(w *Webhook) (moved []*queueGate) {
	before, existed := t.workflows.latest(w.ID)
	stays := existed && before.Active && w.Active && before.AccountID == w.AccountID
	// A lookup that finds an active workflow must also find account data that counts the workflow
	// as active. So update the account before an activation, but after a deactivation.
	switch {
	case stays:
		w.index = before.index
		t.owners[w.AccountID].active[w.index] = w
		if before.Transition != w.Transition {
			t.recomputeAllowedWorkflows(w.AccountID)
		}
	case w.Active:
		o := t.ensureAccountState(w.AccountID)
		//nolint:gosec // an account has fewer than 4 billion workflows
		w.index = uint32(len(o.active))
		o.active = append(o.active, w)
		t.recomputeAllowedWorkflows(w.AccountID)
	}
	t.workflows.set(w)
	if existed && !stays {
		t.removeFromActive(before)
	}
	if existed && before.gate.supersedeWith(&w.gate) {
		moved = []*queueGate{before.gate.queue}
	}
	return moved
}

// removeFromActive removes w from its account's active workflows, if it was active.
func (t *tables) removeFromActive(w *Webhook) {
	if !w.Active {
		return
	}
	o := t.owners[w.AccountID]
	last := len(o.active) - 1
	moved := o.active[last]
	moved.index, o.active[w.index], o.active[last] = w.index, moved, nil
	o.active = o.active[:last]
	t.recomputeAllowedWorkflows(w.AccountID)
	t.dropEmptyAccountState(w.AccountID)
}

// ensureAccountState returns the state of an account, and creates it if there is none.
func (t *tables) ensureAccountState(accountID string) *accountWriterState {
	o := t.owners[accountID]
	if o == nil {
		o = &accountWriterState{id: accountID}
		t.owners[accountID] = o
	}
	return o
}

// dropEmptyAccountState deletes the state of an account if the account has neither a record nor
// active workflows.
func (t *tables) dropEmptyAccountState(accountID string) {
	if o := t.owners[accountID]; !o.known && len(o.active) == 0 {
		delete(t.owners, accountID)
	}
}

func (t *tables) recomputeAllAccounts() {
	for accountID := range t.owners {
		t.recomputeAllowedWorkflows(accountID)
	}
}

// recomputeAllowedWorkflows recomputes which of an account's active workflows the plan allows: the
// ones that were activated first, up to the plan's limit.
func (t *tables) recomputeAllowedWorkflows(accountID string) {
	o := t.owners[accountID]
	if t.loading || !o.known {
		return
	}
	a := &accountView{id: o.id, plan: t.plans.Find(o.plan)}
	if a.plan != nil && a.plan.MaxActive != Unlimited {
		a.limited = true
		if allowed := min(len(o.active), int(a.plan.MaxActive)); allowed > 0 {
			a.last = slices.SortedFunc(slices.Values(o.active), (*Webhook).compare)[allowed-1]
		}
	}
	t.accounts.set(a)
}

// webhookOf compiles a workflow's record into the Webhook that Lookup returns. It also records
// whether the workflow's senders are usable and could be decrypted.
func (t *tables) webhookOf(r *Workflow) *Webhook {
	// Most workflows have one node with one token. For them, one allocation holds everything.
	whole := &struct {
		Webhook
		node  [1]TriggerNode
		token [1]HashedToken
	}{}
	whole.Webhook = Webhook{
		ID: r.ID, AccountID: r.AccountID, Queue: t.intern(r.Queue),
		Active: r.Active, Transition: r.Transition, RateLimit: r.RateLimit,
		Nodes: whole.node[:0],
	}
	w, tokens := &whole.Webhook, whole.token[:0]
	w.gate.init(t.gateOf(w.Queue), r.Closed)
	if o := t.owners[w.AccountID]; o != nil {
		w.AccountID = o.id
	}
	delete(t.unusable, w.ID)
	delete(t.opened, w.ID)
	if len(r.SealedValues()) > 0 {
		t.opened[w.ID] = struct{}{}
	}
	for _, trigger := range r.Triggers {
		node := TriggerNode{
			ID:     t.intern(trigger.NodeID),
			Tokens: append(tokens, trigger.Tokens...),
			Answer: trigger.Answer,
		}
		tokens = nil // only the first node uses the preallocated space
		if trigger.Sender != nil {
			// The sender is compiled once per revision, not once per request.
			if node.Sender, node.Unusable = compileSender(t.keys, w.ID, node.ID,
				trigger.Sender); node.Unusable != nil {
				t.unusable[w.ID] = node.Unusable
				delete(t.opened, w.ID)
			}
		}
		if trigger.Filter != "" && node.Unusable == nil {
			// A node whose filter this version cannot parse refuses requests for now, so that no
			// execution is started or lost by mistake.
			node.Filter, node.Unusable = compileFilter(w.ID, node.ID, trigger.Filter)
		}
		if trigger.OrderKey != "" && node.Unusable == nil {
			node.OrderKey, node.Unusable = compileOrderKey(w.ID, node.ID, trigger.OrderKey,
				node.Sender)
		}
		w.Nodes = append(w.Nodes, node)
	}
	return w
}

// compileFilter compiles the filter of a node. Its error names the node.
func compileFilter(workflowID, nodeID, text string) (*filter.Filter, error) {
	f, err := filter.Parse([]byte(text))
	if err != nil {
		return nil,
			fmt.Errorf("the filter of trigger node %q of workflow %q: %w", nodeID, workflowID, err)
	}
	return f, nil
}

// compileOrderKey compiles the order key of a node with the sender s, which may be nil. It returns
// nil if the order key is in a header with the sender's secret, because order keys are shown to
// operators. Earlier versions stored such order keys.
func compileOrderKey(
	workflowID, nodeID, text string, s *sender.Sender,
) (*filter.OrderKey, error) {
	k, err := filter.ParseOrderKey(text)
	if err != nil {
		return nil,
			fmt.Errorf("the order key of trigger node %q of workflow %q: %w", nodeID, workflowID,
				err)
	}
	if s != nil && slices.Contains(s.SecretHeaders(), k.Header()) {
		return nil, nil //nolint:nilnil // the executions are not ordered
	}
	return k, nil
}

// maxInternedStrings is the maximum number of strings that are kept for sharing. If every workflow
// has different node IDs, keeping them all would take more memory than it saves.
const maxInternedStrings = 10_000

// intern returns a string that equals text. If many records use the same string, it is in memory
// only once.
func (t *tables) intern(text string) string {
	if same, ok := t.texts[text]; ok {
		return same
	}
	if len(t.texts) < maxInternedStrings {
		t.texts[text] = text
	}
	return text
}
