package edit

import (
	"crypto/sha256"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/btree"

	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/seal"
)

// RegistryIndex holds the registry's records in sorted order, for the operators' API. The records
// that its methods return must not be modified.
type RegistryIndex struct {
	*registry.Snapshot

	mu      sync.RWMutex
	current *recordIndex // the records that the methods return
	// writeTarget holds the records to which changes are applied. It is the same as current, except
	// while the bucket is being reloaded.
	writeTarget *recordIndex

	// keyDeletionWatches holds the pending calls to WatchAPIKeyDeletion.
	keyDeletionWatches map[*apiKeyDeletionWatch]struct{}
}

type recordIndex struct {
	plans            Versioned[registry.Plans]
	accounts         btree.Map[string, Versioned[*registry.Account]]
	eventSubscribers map[string]*registry.Account // the accounts whose events start a workflow
	workflows        btree.Map[string, Versioned[*registry.Workflow]]
	closedWorkflows  map[string]struct{} // the IDs of the workflows with IntakeClosed
	// unfinishedTransitions holds the accounts whose last transition (the activation or
	// deactivation of a workflow) has not been written to the record of that workflow yet. It maps
	// the account's ID to the revision of the account's record.
	unfinishedTransitions map[string]uint64
	workflowKeys          btree.Map[string, struct{}]           // see accountWorkflowKey
	workflowsPerQueue     map[string]int                        // number of workflows, by queue
	queueSettings         map[string]Versioned[*registry.Queue] // settings of queues, keyed by name

	apiKeys       btree.Map[string, Versioned[*registry.APIKey]]
	apiKeysByHash map[[sha256.Size]byte]*registry.APIKey
}

func newRecordIndex() *recordIndex {
	return &recordIndex{
		eventSubscribers:      map[string]*registry.Account{},
		closedWorkflows:       map[string]struct{}{},
		unfinishedTransitions: map[string]uint64{},
		workflowsPerQueue:     map[string]int{},
		queueSettings:         map[string]Versioned[*registry.Queue]{},
		apiKeysByHash:         map[[sha256.Size]byte]*registry.APIKey{},
	}
}

// adjustWorkflowsPerQueue adds change, which is 1 or -1, to the number of workflows that use w's
// queue.
func (r *recordIndex) adjustWorkflowsPerQueue(w *registry.Workflow, change int) {
	if r.workflowsPerQueue[w.Queue] += change; r.workflowsPerQueue[w.Queue] == 0 {
		delete(r.workflowsPerQueue, w.Queue)
	}
}

// Versioned is a record with its revision. An update specifies the revision that it is based on, so
// it cannot overwrite a concurrent change.
type Versioned[T any] struct {
	Record   T
	Revision uint64 // the sequence of the record in the bucket's stream
}

// accountWorkflowKey returns a key that sorts workflows by account and then by ID. Neither part
// contains a "/".
func accountWorkflowKey(accountID, workflowID string) string { return accountID + "/" + workflowID }

// NewRegistryIndex returns an empty index. keys decrypts the secrets of senders; nil means that
// there are no keys.
func NewRegistryIndex(keys *seal.Keys) *RegistryIndex {
	r := newRecordIndex()
	return &RegistryIndex{
		Snapshot:           registry.NewSnapshot(keys),
		current:            r,
		writeTarget:        r,
		keyDeletionWatches: map[*apiKeyDeletionWatch]struct{}{},
	}
}

// Apply implements consistency.Sink. It updates the snapshot before the records. An activation
// reads a record and then checks the plan's limit against the snapshot's count of active workflows,
// so the count must never be older than the records.
func (r *RegistryIndex) Apply(c registry.Change) {
	r.Snapshot.Apply(c)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writeTarget.apply(c)
	if c.DeletedAPIKey != "" {
		r.notifyAPIKeyDeletions()
	}
}

// FinishLoad implements consistency.Sink.
func (r *RegistryIndex) FinishLoad() {
	r.Snapshot.FinishLoad()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current = r.writeTarget
	r.notifyAPIKeyDeletions()
}

// Reset implements consistency.Sink.
func (r *RegistryIndex) Reset() {
	r.Snapshot.Reset()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writeTarget = newRecordIndex()
}

func (r *recordIndex) apply(c registry.Change) {
	switch {
	case c.Plans != nil:
		r.plans = Versioned[registry.Plans]{c.Plans, c.Revision}
	case c.Account != nil:
		r.accounts.Set(c.Account.ID, Versioned[*registry.Account]{c.Account, c.Revision})
		if delete(r.eventSubscribers, c.Account.ID); c.Account.Events != nil {
			r.eventSubscribers[c.Account.ID] = c.Account
		}
		r.updateUnfinishedTransition(c.Account.ID)
	case c.DeletedAccount != "":
		r.accounts.Delete(c.DeletedAccount)
		delete(r.eventSubscribers, c.DeletedAccount)
		r.updateUnfinishedTransition(c.DeletedAccount)
	case c.Workflow != nil:
		id := c.Workflow.ID
		before, existed := r.workflows.Set(id, Versioned[*registry.Workflow]{
			c.Workflow, c.Revision,
		})
		if delete(r.closedWorkflows, id); c.Workflow.IntakeClosed {
			r.closedWorkflows[id] = struct{}{}
		}
		if existed {
			r.workflowKeys.Delete(accountWorkflowKey(before.Record.AccountID, id))
			r.adjustWorkflowsPerQueue(before.Record, -1)
			r.updateUnfinishedTransition(before.Record.AccountID)
		}
		r.adjustWorkflowsPerQueue(c.Workflow, 1)
		r.updateUnfinishedTransition(c.Workflow.AccountID)
		r.workflowKeys.Set(accountWorkflowKey(c.Workflow.AccountID, id), struct{}{})
	case c.APIKey != nil:
		r.putAPIKey(Versioned[*registry.APIKey]{c.APIKey, c.Revision})
	case c.DeletedAPIKey != "":
		r.deleteAPIKey(c.DeletedAPIKey)
	case c.Queue != nil:
		r.queueSettings[c.Queue.Name] = Versioned[*registry.Queue]{c.Queue, c.Revision}
	case c.DeletedWorkflow != "":
		delete(r.closedWorkflows, c.DeletedWorkflow)
		if before, existed := r.workflows.Delete(c.DeletedWorkflow); existed {
			r.workflowKeys.Delete(accountWorkflowKey(before.Record.AccountID, c.DeletedWorkflow))
			r.adjustWorkflowsPerQueue(before.Record, -1)
			r.updateUnfinishedTransition(before.Record.AccountID)
		}
	}
}

// updateUnfinishedTransition records whether an account's last transition has been written to the
// workflow's record. It must be called after each change of the account or of one of its workflows.
func (r *recordIndex) updateUnfinishedTransition(accountID string) {
	delete(r.unfinishedTransitions, accountID)
	account, ok := r.accounts.Get(accountID)
	if !ok {
		return
	}
	w, ok := r.workflows.Get(account.Record.LastTransition.WorkflowID)
	if ok && lacksLastTransition(w.Record, account.Record) {
		r.unfinishedTransitions[accountID] = account.Revision
	}
}

// Plans returns the plan catalog and its revision. The catalog is nil if none has been stored.
func (r *RegistryIndex) Plans() Versioned[registry.Plans] {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.current.plans
}

// Account returns an account and its revision, and reports whether the account exists.
func (r *RegistryIndex) Account(id string) (Versioned[*registry.Account], bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.current.accounts.Get(id)
}

// EventSubscription returns an account's event subscription, or nil if its events start no
// workflow.
func (r *RegistryIndex) EventSubscription(accountID string) *registry.EventSubscription {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if a := r.current.eventSubscribers[accountID]; a != nil {
		return a.Events
	}
	return nil
}

// AccountsWithEventSubscription returns the accounts whose events start a workflow, sorted by ID.
func (r *RegistryIndex) AccountsWithEventSubscription() []*registry.Account {
	r.mu.RLock()
	defer r.mu.RUnlock()
	all := make([]*registry.Account, 0, len(r.current.eventSubscribers))
	for _, id := range slices.Sorted(maps.Keys(r.current.eventSubscribers)) {
		all = append(all, r.current.eventSubscribers[id])
	}
	return all
}

// Workflow returns a workflow and its revision, and reports whether the workflow exists.
func (r *RegistryIndex) Workflow(id string) (Versioned[*registry.Workflow], bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.current.workflows.Get(id)
}

// IntakeClosedWorkflowIDs returns the sorted IDs of the workflows whose requests are refused while
// an executor copies their delivery IDs to another stream.
func (r *RegistryIndex) IntakeClosedWorkflowIDs() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Sorted(maps.Keys(r.current.closedWorkflows))
}

// accountsWithUnfinishedTransition returns the accounts whose last transition (the activation or
// deactivation of a workflow) has not been written to the record of that workflow yet. The result
// maps the account's ID to the revision of the account's record.
func (r *RegistryIndex) accountsWithUnfinishedTransition() map[string]uint64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return maps.Clone(r.current.unfinishedTransitions)
}

// QueueNames returns the names of the queues that are used by a workflow or have a setting in
// force, sorted. A queue with such a setting counts even if no workflow uses it, because executions
// may still wait in it.
func (r *RegistryIndex) QueueNames() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	names, now := slices.Collect(maps.Keys(r.current.workflowsPerQueue)), time.Now()
	for name, settings := range r.current.queueSettings {
		_, used := r.current.workflowsPerQueue[name]
		if !used && settings.Record.HasSettingInForce(now) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Queue returns the settings of a queue and their revision, and reports whether there are any.
func (r *RegistryIndex) Queue(name string) (Versioned[*registry.Queue], bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	settings, exist := r.current.queueSettings[name]
	return settings, exist
}

// QueueSettings returns the settings of all queues that have any, sorted by name.
func (r *RegistryIndex) QueueSettings() []*registry.Queue {
	r.mu.RLock()
	defer r.mu.RUnlock()
	all := make([]*registry.Queue, 0, len(r.current.queueSettings))
	for _, name := range slices.Sorted(maps.Keys(r.current.queueSettings)) {
		all = append(all, r.current.queueSettings[name].Record)
	}
	return all
}

// isAccountInUse reports whether an account has workflows or keys.
func (r *RegistryIndex) isAccountInUse(accountID string) bool {
	if len(r.Workflows(accountID, "", 1)) > 0 {
		return true
	}
	return slices.ContainsFunc(r.APIKeys("", MaxAPIKeys), func(k *registry.APIKey) bool {
		return k.AccountID == accountID
	})
}

// Accounts returns at most limit accounts, sorted by ID, starting after the given ID.
func (r *RegistryIndex) Accounts(after string, limit int) []*registry.Account {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return page(&r.current.accounts, after, limit)
}

// page returns at most limit records, sorted by ID, starting after the given ID.
func page[T any](records *btree.Map[string, Versioned[T]], after string, limit int) []T {
	var list []T
	records.Ascend(after, func(id string, v Versioned[T]) bool {
		if id != after {
			list = append(list, v.Record)
		}
		return len(list) < limit
	})
	return list
}

// CountWorkflows returns the number of all workflows, and the number of those that were not created
// before since.
func (r *RegistryIndex) CountWorkflows(since time.Time) (all, created int) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	r.current.workflows.Ascend("", func(_ string, w Versioned[*registry.Workflow]) bool {
		all++
		if !w.Record.CreatedAt.Before(since) {
			created++
		}
		return true
	})
	return all, created
}

// Workflows returns at most limit workflows, sorted by ID, starting after the given ID. It returns
// the workflows of one account, or of all accounts if accountID is "".
func (r *RegistryIndex) Workflows(accountID, after string, limit int) []*registry.Workflow {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if accountID == "" {
		return page(&r.current.workflows, after, limit)
	}
	var list []*registry.Workflow
	prefix, from := accountWorkflowKey(accountID, ""), accountWorkflowKey(accountID, after)
	r.current.workflowKeys.Ascend(from, func(key string, _ struct{}) bool {
		id, ok := strings.CutPrefix(key, prefix)
		if !ok {
			return false
		}
		if w, found := r.current.workflows.Get(id); found && key != from {
			list = append(list, w.Record)
		}
		return len(list) < limit
	})
	return list
}
