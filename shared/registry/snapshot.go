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

// CompiledWorkflow is the part of a workflow that is needed to handle a request. It is immutable: a
// change replaces it.
type CompiledWorkflow struct {
	ID          string
	AccountID   string
	Queue       string
	Active      bool      // as recorded, regardless of the plan
	activeIndex uint32    // index in accountState.active; for the writer only
	Transition  int64     // orders the active workflows of an account: see Workflow.Transition
	RateLimit   RateLimit // zero means the plan's rate limit
	Nodes       []TriggerNode
	gate        workflowGate // determines where the workflow's start messages are stored
}

func (w *CompiledWorkflow) key() string { return w.ID }

// compareActivation compares two active workflows of an account by the time of their activation.
// The result is negative if w was activated first.
func (w *CompiledWorkflow) compareActivation(other *CompiledWorkflow) int {
	return cmp.Or(cmp.Compare(w.Transition, other.Transition), cmp.Compare(w.ID, other.ID))
}

// TriggerNode is the part of a webhook trigger node that is needed to handle a request.
type TriggerNode struct {
	ID     string
	Tokens []HashedToken // newest first; expired tokens may still be among them
	// Sender verifies the node's requests. If it is nil, only the token is checked, unless
	// UnusableReason is set.
	Sender *sender.Sender
	// Filter selects the requests that start an execution. If it is nil, every request does, unless
	// UnusableReason is set.
	Filter *filter.Filter
	// OrderKey is the place of the order key in a request. If it is nil, the executions are not
	// ordered, unless UnusableReason is set.
	OrderKey *filter.OrderKeyPlace
	// SyncResponse makes the response to a request wait until its execution has finished. nil means
	// that the response does not wait.
	SyncResponse *SyncResponse
	// UnusableReason is the reason why the node cannot handle requests: this process cannot decrypt
	// the secrets of its sender, or cannot interpret its sender, its filter or its order key. Such
	// a node must refuse every request. nil means that the node is usable.
	UnusableReason error
}

// WorkflowView is a workflow and its account's plan, as needed to handle a request.
type WorkflowView struct {
	Workflow *CompiledWorkflow
	Plan     *Plan // nil means that the account or its plan is unknown, and nothing is allowed
	// WithinPlan reports whether the plan allows the workflow to be active.
	WithinPlan bool
}

// PlanHasWebhooks reports whether the plan allows webhook triggers. It returns false if Plan is
// nil.
func (v WorkflowView) PlanHasWebhooks() bool { return v.Plan != nil && v.Plan.WebhookTriggers }

// RateLimit returns the workflow's own rate limit or, if it has none, that of its plan. It returns
// the zero RateLimit if the workflow has none and Plan is nil.
func (v WorkflowView) RateLimit() RateLimit {
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
	// hasActiveLimit reports whether the plan limits the number of active workflows. If it does,
	// lastAllowed is the last workflow that the plan allows to be active, in the order of
	// activation, or nil if the plan allows none.
	hasActiveLimit bool
	lastAllowed    *CompiledWorkflow
}

func (a *accountView) key() string { return a.id }

// allowsActive reports whether the plan allows w to be active. If the plan limits the number of
// active workflows, allowsActive returns false for an inactive workflow.
func (a *accountView) allowsActive(w *CompiledWorkflow) bool {
	return !a.hasActiveLimit ||
		a.lastAllowed != nil && w.Active && w.compareActivation(a.lastAllowed) <= 0
}

// accountState is the state of an account from which the writers of the snapshot compute the
// account's accountView. Lookup reads only the accountView.
type accountState struct {
	id        string
	hasRecord bool                // if false, only workflows refer to the account
	planID    string              // the ID of the account's plan
	active    []*CompiledWorkflow // the active workflows, in no particular order
}

// Snapshot is the registry in memory. Lookup takes no lock. After the bucket has been recreated or
// restored, its records are first loaded into separate tables, which then replace the current
// tables in one step.
type Snapshot struct {
	current atomic.Pointer[tables] // read by Lookup

	mu sync.Mutex
	// writeTarget holds the tables to which changes are applied: the current ones, or the separate
	// ones while the registry is being reloaded.
	writeTarget      *tables
	keys             *seal.Keys       // to decrypt senders' secrets
	pendingRevisions pendingRevisions // the changes that have been applied but are not yet in force
}

// tables holds the records of one copy of the registry. The maps that Lookup reads are split into
// shards. A change copies and replaces only the shard of its key, which takes about 10 µs with a
// million workflows. Readers take no lock.
type tables struct {
	workflows shardedMap[*CompiledWorkflow]
	accounts  shardedMap[*accountView]

	// The following fields are only for writers, which hold Snapshot.mu. Lookup does not read them.
	loading         bool
	plans           Plans
	accountStates   map[string]*accountState // by account ID
	internedStrings map[string]string        // strings that many records share: see intern
	// senderErrors holds, by workflow ID, why a sender of the workflow is unusable (see
	// TriggerNode.UnusableReason).
	senderErrors map[string]error
	// decryptedWorkflows holds the IDs of the workflows that have encrypted sender secrets, all of
	// which could be decrypted.
	decryptedWorkflows map[string]struct{}
	// partlyDecrypted holds, by workflow ID, the counts of the encrypted values of the workflows
	// that have an entry in senderErrors.
	partlyDecrypted map[string]DecryptionCounts
	queueGates      map[string]*queueGate // by queue name
	keys            *seal.Keys            // to decrypt senders' secrets

	// ownStreams holds the names of the queues that have their own streams. It is replaced at each
	// change, so readers take no lock.
	ownStreams atomic.Pointer[[]string]
}

// NewSnapshot returns an empty snapshot. Lookup finds nothing until FinishLoad has been called.
// keys decrypts senders' secrets; nil means that there are no keys.
func NewSnapshot(keys *seal.Keys) *Snapshot {
	s := &Snapshot{writeTarget: newTables(keys), keys: keys}
	s.current.Store(s.writeTarget)
	return s
}

func newTables(keys *seal.Keys) *tables {
	t := &tables{
		loading:            true,
		accountStates:      map[string]*accountState{},
		internedStrings:    map[string]string{},
		senderErrors:       map[string]error{},
		decryptedWorkflows: map[string]struct{}{},
		partlyDecrypted:    map[string]DecryptionCounts{},
		queueGates:         map[string]*queueGate{},
		keys:               keys,
	}
	t.ownStreams.Store(&[]string{})
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

// OtherActiveWorkflowCount returns the number of the account's active workflows, not counting the
// given one.
func (s *Snapshot) OtherActiveWorkflowCount(accountID, workflowID string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.current.Load()
	o := t.accountStates[accountID]
	if o == nil {
		return 0
	}
	count := int64(len(o.active))
	if w, ok := t.workflows.getAsWriter(workflowID); ok && w.Active && w.AccountID == accountID {
		count--
	}
	return count
}

// UnusableSenderCount returns the number of workflows with an unusable sender, and the reason for
// one of them, or nil if there is none.
func (s *Snapshot) UnusableSenderCount() (count int, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	unusable := s.current.Load().senderErrors
	for _, why = range unusable {
		break
	}
	return len(unusable), why
}

// DecryptionCounts counts what the keys can and cannot decrypt: a workflow whose senders' secrets
// can all be decrypted counts as one item; of any other workflow, each encrypted value is one item.
func (s *Snapshot) DecryptionCounts() (found DecryptionCounts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.current.Load()
	found.Decryptable = len(now.decryptedWorkflows)
	for _, counts := range now.partlyDecrypted {
		found.add(counts)
	}
	return found
}

// Apply implements consistency.Sink.
func (s *Snapshot) Apply(c Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.writeTarget.apply(c) {
		s.pendingRevisions.trackUntilDrained(q, c.Revision)
	}
}

// FirstPendingRevision implements consistency.PendingReporter. The changes from revision since on
// are not in force yet, because requests that began before them are still storing messages. since
// is 0 if all changes are in force. settled is closed when a later call may return another since.
// settled may be nil if since is 0.
func (s *Snapshot) FirstPendingRevision() (since uint64, settled <-chan struct{}) {
	return s.pendingRevisions.firstRevision()
}

// FinishLoad implements consistency.Sink.
func (s *Snapshot) FinishLoad() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writeTarget.publish()
	before := s.current.Swap(s.writeTarget)
	if before == s.writeTarget {
		return
	}
	for w := range before.workflows.values() {
		w.gate.supersede()
	}
	// Requests that looked up their workflow in the previous tables may still be storing messages.
	// Until they have finished, revision 1 counts as pending, so no revision is in force.
	for _, q := range before.queueGates {
		s.pendingRevisions.trackUntilDrained(q, 1)
	}
}

// Reset implements consistency.Sink.
func (s *Snapshot) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writeTarget = newTables(s.keys)
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
		// Either the workflow exceeds its plan's limit, or it was deactivated or deleted after this
		// loop had read it and before newView read its account. If the map still has the same
		// CompiledWorkflow, the workflow exceeds the limit.
		if again, _ := t.workflows.get(workflowID); again == w {
			return view, true
		}
	}
}

func (t *tables) newView(w *CompiledWorkflow) WorkflowView {
	view := WorkflowView{Workflow: w}
	if a, ok := t.accounts.get(w.AccountID); ok {
		view.Plan, view.WithinPlan = a.plan, a.allowsActive(w)
	}
	return view
}

// apply applies a change. If the change affects where start messages are stored, affectedQueues
// holds the gates of the queues concerned: requests that began before the change may still store
// messages where they were stored until then.
func (t *tables) apply(c Change) (affectedQueues []*queueGate) {
	switch {
	case c.Plans != nil:
		t.plans = c.Plans
		t.recomputeAllAllowedWorkflows()
	case c.Account != nil:
		o := t.ensureAccountState(c.Account.ID)
		o.hasRecord, o.planID = true, t.intern(c.Account.Plan)
		t.recomputeAllowedWorkflows(c.Account.ID)
	case c.DeletedAccount != "":
		t.ensureAccountState(c.DeletedAccount).hasRecord = false
		t.dropEmptyAccountState(c.DeletedAccount)
		t.accounts.remove(c.DeletedAccount)
	case c.Workflow != nil:
		return t.setWorkflow(t.compileWorkflow(c.Workflow))
	case c.Queue != nil:
		q := t.ensureQueueGate(c.Queue.Name)
		t.setHasOwnStream(c.Queue.Name, c.Queue.Stream != nil)
		if q.applyQueue(c.Queue) {
			return []*queueGate{q}
		}
	case c.DeletedWorkflow != "":
		if before, existed := t.workflows.getAsWriter(c.DeletedWorkflow); existed {
			t.workflows.remove(c.DeletedWorkflow)
			delete(t.senderErrors, c.DeletedWorkflow)
			delete(t.decryptedWorkflows, c.DeletedWorkflow)
			delete(t.partlyDecrypted, c.DeletedWorkflow)
			t.removeFromActive(before)
			before.gate.supersede()
		}
	}
	return nil
}

// publish makes the loaded tables visible to Lookup.
func (t *tables) publish() {
	t.loading = false
	t.recomputeAllAllowedWorkflows()
	// Publish the accounts first: a lookup that finds a workflow must also find its account.
	t.accounts.publish()
	t.workflows.publish()
}

func (t *tables) setWorkflow(w *CompiledWorkflow) (affectedQueues []*queueGate) {
	before, existed := t.workflows.getAsWriter(w.ID)
	stays := existed && before.Active && w.Active && before.AccountID == w.AccountID
	// If Lookup finds an active workflow, the account must already count the workflow as active.
	// Otherwise, the workflow would seem to exceed the plan's limit. So update the account before
	// an activation, but after a deactivation.
	switch {
	case stays:
		w.activeIndex = before.activeIndex
		t.accountStates[w.AccountID].active[w.activeIndex] = w
		if before.Transition != w.Transition {
			t.recomputeAllowedWorkflows(w.AccountID)
		}
	case w.Active:
		o := t.ensureAccountState(w.AccountID)
		//nolint:gosec // an account has fewer than 4 billion workflows
		w.activeIndex = uint32(len(o.active))
		o.active = append(o.active, w)
		t.recomputeAllowedWorkflows(w.AccountID)
	}
	t.workflows.set(w)
	if existed && !stays {
		t.removeFromActive(before)
	}
	if existed && before.gate.supersedeWith(&w.gate) {
		affectedQueues = []*queueGate{before.gate.queue}
	}
	return affectedQueues
}

// removeFromActive removes w from its account's active workflows, if it was active.
func (t *tables) removeFromActive(w *CompiledWorkflow) {
	if !w.Active {
		return
	}
	o := t.accountStates[w.AccountID]
	last := len(o.active) - 1
	moved := o.active[last]
	moved.activeIndex, o.active[w.activeIndex], o.active[last] = w.activeIndex, moved, nil
	o.active = o.active[:last]
	t.recomputeAllowedWorkflows(w.AccountID)
	t.dropEmptyAccountState(w.AccountID)
}

// ensureAccountState returns the state of an account, and creates it if there is none.
func (t *tables) ensureAccountState(accountID string) *accountState {
	o := t.accountStates[accountID]
	if o == nil {
		o = &accountState{id: accountID}
		t.accountStates[accountID] = o
	}
	return o
}

// dropEmptyAccountState deletes the state of an account if the account has neither a record nor
// active workflows.
func (t *tables) dropEmptyAccountState(accountID string) {
	if o := t.accountStates[accountID]; !o.hasRecord && len(o.active) == 0 {
		delete(t.accountStates, accountID)
	}
}

func (t *tables) recomputeAllAllowedWorkflows() {
	for accountID := range t.accountStates {
		t.recomputeAllowedWorkflows(accountID)
	}
}

// recomputeAllowedWorkflows recomputes which of an account's active workflows the plan allows: the
// ones that were activated first, up to the plan's limit.
func (t *tables) recomputeAllowedWorkflows(accountID string) {
	o := t.accountStates[accountID]
	if t.loading || !o.hasRecord {
		return
	}
	a := &accountView{id: o.id, plan: t.plans.Find(o.planID)}
	if a.plan != nil && a.plan.MaxActive != Unlimited {
		a.hasActiveLimit = true
		if allowed := min(len(o.active), int(a.plan.MaxActive)); allowed > 0 {
			byActivation := slices.SortedFunc(slices.Values(o.active),
				(*CompiledWorkflow).compareActivation)
			a.lastAllowed = byActivation[allowed-1]
		}
	}
	t.accounts.set(a)
}

// compileWorkflow compiles a workflow's record into the CompiledWorkflow that Lookup returns. It
// also records whether the workflow's senders are usable and could be decrypted.
func (t *tables) compileWorkflow(r *Workflow) *CompiledWorkflow {
	// Most workflows have one node with one token. So allocate the CompiledWorkflow together with
	// space for one node and one token.
	whole := &struct {
		CompiledWorkflow
		node  [1]TriggerNode
		token [1]HashedToken
	}{}
	whole.CompiledWorkflow = CompiledWorkflow{
		ID: r.ID, AccountID: r.AccountID, Queue: t.intern(r.Queue),
		Active: r.Active, Transition: r.Transition, RateLimit: r.RateLimit,
		Nodes: whole.node[:0],
	}
	w, tokens := &whole.CompiledWorkflow, whole.token[:0]
	w.gate.init(t.ensureQueueGate(w.Queue), r.IntakeClosed)
	if o := t.accountStates[w.AccountID]; o != nil {
		w.AccountID = o.id
	}
	delete(t.senderErrors, w.ID)
	delete(t.decryptedWorkflows, w.ID)
	delete(t.partlyDecrypted, w.ID)
	if len(r.SealedValues()) > 0 {
		t.decryptedWorkflows[w.ID] = struct{}{}
	}
	usable := true // whether all senders are usable
	for _, trigger := range r.Triggers {
		node := TriggerNode{
			ID:           t.intern(trigger.NodeID),
			Tokens:       append(tokens, trigger.Tokens...),
			SyncResponse: trigger.SyncResponse,
		}
		tokens = nil // only the first node uses the preallocated space
		if trigger.Sender != nil {
			// The sender is compiled once per revision, not once per request.
			if node.Sender, node.UnusableReason = compileSender(t.keys, w.ID, node.ID,
				trigger.Sender); node.UnusableReason != nil {
				t.senderErrors[w.ID] = node.UnusableReason
				usable = false
			}
		}
		if trigger.Filter != "" && node.UnusableReason == nil {
			// If this version cannot parse the filter, the node refuses requests for now, because
			// it cannot tell which of them must start an execution.
			node.Filter, node.UnusableReason = compileFilter(w.ID, node.ID, trigger.Filter)
		}
		if trigger.OrderKey != "" && node.UnusableReason == nil {
			node.OrderKey, node.UnusableReason = compileOrderKey(w.ID, node.ID, trigger.OrderKey,
				node.Sender)
		}
		w.Nodes = append(w.Nodes, node)
	}
	if !usable {
		// The error of a sender names one missing key at most. So count every encrypted value.
		delete(t.decryptedWorkflows, w.ID)
		var counts DecryptionCounts
		counts.CountWorkflowSecrets(t.keys, r)
		t.partlyDecrypted[w.ID] = counts
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

// compileOrderKey compiles the order key of a node whose sender is s, which may be nil. It returns
// nil if the order key is taken from a header that contains the sender's secret, because order keys
// are shown to operators. Earlier versions accepted such order keys.
func compileOrderKey(
	workflowID, nodeID, text string, s *sender.Sender,
) (*filter.OrderKeyPlace, error) {
	k, err := filter.ParseOrderKeyPlace(text)
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
	if same, ok := t.internedStrings[text]; ok {
		return same
	}
	if len(t.internedStrings) < maxInternedStrings {
		t.internedStrings[text] = text
	}
	return text
}
