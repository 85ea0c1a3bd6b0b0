package edit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/filter"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/consistency"
)

// WorkflowSpec holds the settings of a workflow that an operator can set.
type WorkflowSpec struct {
	ID        string
	AccountID string
	Name      string
	Queue     string              // "" means the default queue
	RateLimit *registry.RateLimit // nil means the plan's rate limit
	Triggers  []TriggerSpec       // all nodes; an existing node that is not listed is deleted
	// OnlyInAccount is the only account that an existing workflow may belong to. A workflow of
	// another account is reported as not found. "" means any account.
	OnlyInAccount string
	// BeforeAccountChange is called before a new workflow is stored, and before a workflow moves to
	// another account. If it fails, nothing is stored. It may be called more than once. nil means
	// that nothing is called.
	BeforeAccountChange func(context.Context) error
	// OnlyIfNew makes the change fail with ErrPreconditionFailed if the workflow already exists,
	// unless the existing workflow is already as requested.
	OnlyIfNew bool
}

// updatedAtConditionKey is the context key of the time that WithUpdatedAtCondition sets.
type updatedAtConditionKey struct{}

// WithUpdatedAtCondition returns a context in which changes of a workflow fail with
// ErrPreconditionFailed unless the workflow was last changed at the given time, to the microsecond.
// A change that would change nothing succeeds anyway, so that calls can be repeated. The zero time
// allows any version.
func WithUpdatedAtCondition(ctx context.Context, at time.Time) context.Context {
	return context.WithValue(ctx, updatedAtConditionKey{}, at)
}

// mustExistConditionKey is the context key of the condition that WithMustExistCondition sets.
type mustExistConditionKey struct{}

// WithMustExistCondition returns a context in which changes of a workflow that does not exist fail
// with ErrPreconditionFailed instead of creating it.
func WithMustExistCondition(ctx context.Context) context.Context {
	return context.WithValue(ctx, mustExistConditionKey{}, true)
}

// accountConditionKey is the context key of the condition that WithAccountCondition sets.
type accountConditionKey struct{}

// WithAccountCondition returns a context for a conditional change of an account. The change calls
// check with the existing account, or with nil if there is none. If check returns an error, the
// change fails with that error, unless the account is already as requested. check may be called
// more than once.
func WithAccountCondition(
	ctx context.Context, check func(*registry.Account) error,
) context.Context {
	return context.WithValue(ctx, accountConditionKey{}, check)
}

// checkAccountCondition checks the condition of WithAccountCondition, if there is one, for an
// account that is about to be changed. a is nil if there is no account.
func checkAccountCondition(ctx context.Context, a *registry.Account) error {
	if check, ok := ctx.Value(accountConditionKey{}).(func(*registry.Account) error); ok {
		return check(a)
	}
	return nil
}

// checkWorkflowPreconditions returns ErrPreconditionFailed if a workflow that is about to be
// changed does not satisfy the conditions of WithUpdatedAtCondition and WithMustExistCondition. w
// is nil if there is no workflow.
func checkWorkflowPreconditions(ctx context.Context, w *registry.Workflow) error {
	if w == nil && ctx.Value(mustExistConditionKey{}) != nil {
		return ErrPreconditionFailed
	}
	at, _ := ctx.Value(updatedAtConditionKey{}).(time.Time)
	if at.IsZero() || w != nil && w.UpdatedAt.UnixMicro() == at.UnixMicro() {
		return nil
	}
	return ErrPreconditionFailed
}

// TriggerSpec holds the settings of a trigger node that an operator can set.
type TriggerSpec struct {
	NodeID        string
	Name          string
	SamplePayload []byte // one JSON text; nil leaves it unchanged
	RemoveSample  bool   // deletes the sample payload; SamplePayload must be nil

	TriggerSettings
}

// TriggerSettings configures how a node handles requests. The settings are always replaced as a
// whole: an omitted setting is removed.
type TriggerSettings struct {
	// Filter selects the requests that start an execution: see package filter. nil or a JSON null
	// selects all.
	Filter []byte
	// OrderKey is the place of the order key in a request, for example header:X-Customer or
	// ptr:/order/id. "" means that the executions are not ordered.
	OrderKey string
	// SyncResponse makes the response to a request wait until its execution has finished. nil means
	// that the response does not wait.
	SyncResponse *registry.SyncResponse
}

// MaxSyncWaitSeconds is the maximum number of seconds that a response may wait for its execution.
// Senders and proxies give up after 30 s, so the limit is lower.
const MaxSyncWaitSeconds = 25

// check validates the settings. It returns an *InvalidFieldError for each invalid setting, joined
// with errors.Join. fieldPath returns the path of a setting in the operator's request, for error
// messages.
func (s TriggerSettings) check(fieldPath func(field string) string) error {
	var problems []error
	if s.SyncResponse != nil &&
		(s.SyncResponse.WaitSeconds < 1 || s.SyncResponse.WaitSeconds > MaxSyncWaitSeconds) {
		problems = append(problems, &InvalidFieldError{
			fieldPath("answer.waitSeconds"),
			fmt.Sprintf("must be 1 to %d, not %d", MaxSyncWaitSeconds, s.SyncResponse.WaitSeconds),
		})
	}
	if isNonNullJSON(s.Filter) {
		if _, err := filter.Parse(s.Filter); err != nil {
			problems = append(problems, &InvalidFieldError{fieldPath("filter"), err.Error()})
		}
	}
	if s.OrderKey != "" {
		if _, err := filter.ParseOrderKeyPlace(s.OrderKey); err != nil {
			problems = append(problems, &InvalidFieldError{fieldPath("orderKey"), err.Error()})
		}
	}
	return errors.Join(problems...)
}

// neededCapabilities returns the capabilities that every ingress must have before s is stored as
// the settings of a node: CapabilityFilters if s has a filter that the existing node does not have,
// and CapabilitySyncResponses if s has a SyncResponse and the existing node has none. have is the
// existing node, or nil if the node is new.
//
// The result does not include the capability for order keys, which prepareOrderKeys checks, nor
// those for settings outside of a node: the change that stores such a setting must call
// requireCapability.
func (s TriggerSettings) neededCapabilities(
	have *registry.Trigger,
) (needed []consistency.Capability) {
	var before, after registry.Trigger
	if have != nil {
		before = *have
	}
	if s.applyTo(&after); after.Filter != "" && after.Filter != before.Filter {
		needed = append(needed, consistency.CapabilityFilters)
	}
	if after.SyncResponse != nil && before.SyncResponse == nil {
		needed = append(needed, consistency.CapabilitySyncResponses)
	}
	return needed
}

// applyTo copies the validated settings into a node.
func (s TriggerSettings) applyTo(node *registry.Trigger) {
	node.Filter, node.OrderKey, node.SyncResponse = "", s.OrderKey, s.SyncResponse.Clone()
	if isNonNullJSON(s.Filter) {
		if f, err := filter.Parse(s.Filter); err == nil {
			node.Filter = f.String()
		}
	}
}

// triggerSettingsOf returns the settings of a node.
func triggerSettingsOf(node *registry.Trigger) (s TriggerSettings) {
	s.OrderKey, s.SyncResponse = node.OrderKey, node.SyncResponse.Clone()
	if node.Filter != "" {
		s.Filter = []byte(node.Filter)
	}
	return s
}

// isNonNullJSON reports whether a JSON value is present and not null.
func isNonNullJSON(text []byte) bool {
	text = bytes.TrimSpace(text)
	return len(text) > 0 && string(text) != "null"
}

// setDefaultsAndValidate sets the queue to the default queue if none is given, and validates the
// spec.
func (s *WorkflowSpec) setDefaultsAndValidate() error {
	if s.Queue == "" {
		s.Queue = execution.DefaultQueue
	}
	problems := []error{
		checkID("id", s.ID), checkID("accountId", s.AccountID), checkID("queue", s.Queue),
		checkDisplayName("name", s.Name),
	}
	if s.RateLimit != nil {
		if err := checkRateLimit(s.RateLimit.Requests,
			int64(s.RateLimit.Window/time.Second)); err != nil {
			problems = append(problems, &InvalidFieldError{"rateLimit", err.Error()})
		}
	}
	if n := len(s.Triggers); n < 1 || n > MaxTriggersPerWorkflow {
		problems = append(problems, &InvalidFieldError{
			"triggers",
			fmt.Sprintf("a workflow has 1 to %d webhook trigger nodes, not %d",
				MaxTriggersPerWorkflow, n),
		})
	}
	seen := map[string]bool{}
	for i, t := range s.Triggers {
		at := func(field string) string { return fmt.Sprintf("triggers[%d].%s", i, field) }
		problems = append(problems, checkID(at("nodeId"), t.NodeID), checkDisplayName(at("name"),
			t.Name))
		if seen[t.NodeID] {
			problems = append(problems, &InvalidFieldError{
				at("nodeId"), fmt.Sprintf("%q is there twice", t.NodeID),
			})
		}
		seen[t.NodeID] = true
		if t.SamplePayload != nil {
			problems = append(problems, checkSample(at("samplePayload"), t.SamplePayload))
		}
		problems = append(problems, t.check(at))
	}
	return errors.Join(problems...)
}

// PutWorkflow creates an inactive workflow or replaces an existing one. created reports whether the
// workflow is new. An existing node keeps its tokens, and keeps its sample payload if none is
// given. A new node gets a token. PutWorkflow fails with ErrIngressTooOld if a live ingress cannot
// enforce a new setting.
func (e *Editor) PutWorkflow(
	ctx context.Context, spec WorkflowSpec,
) (w *registry.Workflow, created bool, err error) {
	if err := spec.setDefaultsAndValidate(); err != nil {
		return nil, false, err
	}
	return e.upsertWorkflow(ctx, spec.ID, func(*registry.Workflow) (WorkflowSpec, error) {
		return spec, nil
	})
}

// ChangeWorkflow changes an existing workflow atomically. modify changes the settings in place. If
// another call changes the workflow at the same time, modify is called again with the new settings,
// so neither change is lost.
func (e *Editor) ChangeWorkflow(
	ctx context.Context, id string, modify func(*WorkflowSpec) error,
) (*registry.Workflow, error) {
	w, _, err := e.upsertWorkflow(ctx, id,
		func(have *registry.Workflow) (spec WorkflowSpec, err error) {
			if have == nil {
				return spec, workflowNotFound(id)
			}
			spec = workflowSpecOf(have)
			if err := modify(&spec); err != nil {
				return spec, err
			}
			spec.ID = id
			return spec, spec.setDefaultsAndValidate()
		})
	return w, err
}

// workflowSpecOf returns the settings of a workflow that an operator can set.
func workflowSpecOf(w *registry.Workflow) WorkflowSpec {
	spec := WorkflowSpec{ID: w.ID, AccountID: w.AccountID, Name: w.Name, Queue: w.Queue}
	if w.RateLimit != (registry.RateLimit{}) {
		limit := w.RateLimit
		spec.RateLimit = &limit
	}
	for i := range w.Triggers {
		t := &w.Triggers[i]
		spec.Triggers = append(spec.Triggers, TriggerSpec{
			NodeID:          t.NodeID,
			Name:            t.Name,
			TriggerSettings: triggerSettingsOf(t),
		})
	}
	return spec
}

// requireCapabilities returns an error that wraps ErrIngressTooOld if a live ingress is too old for
// a setting in triggers that is new compared with have, the existing workflow.
func (e *Editor) requireCapabilities(have *registry.Workflow, triggers []TriggerSpec) error {
	for _, t := range triggers {
		for _, needed := range t.neededCapabilities(have.Trigger(t.NodeID)) {
			if err := e.requireCapability(needed); err != nil {
				return err
			}
		}
	}
	return nil
}

// assignAccount makes w belong to account. It returns an *InvalidFieldError if w is active in
// another account.
func assignAccount(account *registry.Account, w *registry.Workflow) error {
	if w.AccountID == account.ID {
		return nil
	}
	if w.Active {
		return &InvalidFieldError{
			"accountId",
			fmt.Sprintf("the workflow is active in account %q; deactivate it before it moves",
				w.AccountID),
		}
	}
	// Transitions are numbered per account, and none of the new account's transitions concerns this
	// workflow yet. So the workflow starts from the account's last number.
	w.AccountID, w.Transition = account.ID, account.LastTransition.Number
	return nil
}

// upsertWorkflow creates or replaces a workflow. newSpec receives the existing workflow, or nil if
// there is none, and returns the new settings. It may be called more than once.
func (e *Editor) upsertWorkflow(
	ctx context.Context, id string, newSpec func(have *registry.Workflow) (WorkflowSpec, error),
) (w *registry.Workflow, created bool, err error) {
	var dropped []string
	err = e.storeAndConfirm(ctx, func(ctx context.Context) (uint64, error) {
		var added []nodeSecrets
		have, ok := e.index.Workflow(id)
		spec, err := newSpec(have.Record)
		if err != nil {
			return 0, err
		}
		account, accountExists := e.index.Account(spec.AccountID)
		if !accountExists {
			return 0, unknownAccountError(spec.AccountID)
		}
		created = !ok
		if ok && spec.OnlyInAccount != "" && have.Record.AccountID != spec.OnlyInAccount {
			return 0, workflowNotFound(spec.ID)
		}
		if w, err = e.mergedWorkflow(spec, have.Record, account.Record); err != nil {
			return 0, err
		}
		samples, err := e.triggersChangingSample(ctx, have.Record, spec.Triggers)
		if err != nil {
			return 0, err
		}
		same := ok && registry.Equal(w, have.Record)
		if same && len(samples) == 0 {
			return have.Revision, errUnchanged
		}
		if spec.OnlyIfNew && ok {
			return 0, ErrPreconditionFailed
		}
		if err := e.prepareWorkflowChange(ctx, have, w); err != nil {
			return 0, err
		}
		if spec.BeforeAccountChange != nil && (!ok || have.Record.AccountID != w.AccountID) {
			if err := spec.BeforeAccountChange(ctx); err != nil {
				return 0, err
			}
		}
		// From here on, the change is stored in several steps, so all checks must come before this
		// point.
		for _, t := range samples {
			if err := e.storeSample(ctx, w.ID, t.NodeID, t.SamplePayload); err != nil {
				return 0, err
			}
		}
		if same {
			return have.Revision, errUnchanged
		}
		if added, err = e.addNodeSecrets(ctx, have.Record, w, spec.Triggers); err != nil {
			return 0, err
		}
		dropped = removedNodeIDs(have.Record, w)
		w.UpdatedAt = e.now()
		if ok && have.Record.AccountID != w.AccountID {
			w.MovedAt = w.UpdatedAt
		}
		revision, err := e.put(ctx, e.registry, registry.WorkflowPrefix+id, w, have.Revision)
		if err != nil {
			return 0, err
		}
		return revision, e.guardNewSecretsAgainstDeletion(ctx, id, added)
	})
	if err = e.deleteSecretsOfRemovedNodes(ctx, id, dropped, err); err == nil {
		err = e.checkAccountOrUndoCreate(ctx, w, created)
	}
	return w, created, err
}

// mergedWorkflow returns the record to store for spec. have is the existing record, whose tokens
// and senders are kept, or nil if the workflow is new.
func (e *Editor) mergedWorkflow(
	spec WorkflowSpec, have *registry.Workflow, account *registry.Account,
) (*registry.Workflow, error) {
	w := &registry.Workflow{ID: spec.ID, CreatedAt: e.now()}
	if have != nil {
		w = have.Clone()
	}
	if have != nil && spec.OnlyIfNew && w.AccountID != spec.AccountID {
		return nil, ErrPreconditionFailed
	}
	if err := assignAccount(account, w); err != nil {
		return nil, err
	}
	w.IntakeClosed = false
	w.Name, w.Queue, w.RateLimit = spec.Name, spec.Queue, registry.RateLimit{}
	if spec.RateLimit != nil {
		w.RateLimit = *spec.RateLimit
	}
	if err := e.requireCapabilities(w, spec.Triggers); err != nil {
		return nil, err
	}
	return w, mergeTriggers(w, spec.Triggers)
}

// mergeTriggers replaces the nodes of w with the nodes in specs. Existing nodes keep their tokens,
// and new nodes have none yet. It returns an *InvalidFieldError for each order key or filter that
// would show the secret of a node's sender.
func mergeTriggers(w *registry.Workflow, specs []TriggerSpec) error {
	var problems []error
	nodes := make([]registry.Trigger, 0, len(specs))
	for i, spec := range specs {
		node := registry.Trigger{NodeID: spec.NodeID}
		have := w.Trigger(spec.NodeID)
		if have != nil {
			node = *have
		}
		node.Name = spec.Name
		spec.applyTo(&node)
		if shown := newlyExposedSecret(have, &node); shown != nil {
			problems = append(problems, &InvalidFieldError{
				fmt.Sprintf("triggers[%d].%s", i, shown.setting),
				fmt.Sprintf("the header %s holds the secret of the node's sender, and the %s "+
					"would expose it", shown.header, shown.setting),
			})
		}
		nodes = append(nodes, node)
	}
	w.Triggers = nodes
	return errors.Join(problems...)
}

// triggersChangingSample returns the elements of specs that change or remove the sample payload of
// an existing node. have is the existing workflow, or nil if the workflow is new.
func (e *Editor) triggersChangingSample(
	ctx context.Context, have *registry.Workflow, specs []TriggerSpec,
) (changed []TriggerSpec, err error) {
	for _, spec := range specs {
		if spec.SamplePayload == nil && !spec.RemoveSample || have.Trigger(spec.NodeID) == nil {
			continue
		}
		secrets, _, err := e.readSecrets(ctx, have.ID, spec.NodeID)
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(secrets.SamplePayload, spec.SamplePayload) {
			changed = append(changed, spec)
		}
	}
	return changed, nil
}

// addNodeSecrets stores a token and the sample payload for each new node: each node that is in w
// but not in before. It adds the tokens' hashes to w. added holds the secrets of the new nodes.
// before is nil if the workflow is new.
func (e *Editor) addNodeSecrets(
	ctx context.Context, before, w *registry.Workflow, specs []TriggerSpec,
) (added []nodeSecrets, err error) {
	for _, spec := range specs {
		if before.Trigger(spec.NodeID) != nil {
			continue
		}
		// Store the token before its hash, because a hash would be useless without its token.
		secrets, err := e.createNodeSecrets(ctx, w.ID, spec.NodeID, spec.SamplePayload)
		if err != nil {
			return nil, err
		}
		node := w.Trigger(spec.NodeID)
		node.Tokens = []registry.HashedToken{{Hash: registry.HashToken(secrets.token.Text)}}
		added = append(added, secrets)
	}
	return added, nil
}

// removedNodeIDs returns the IDs of the nodes that are in before but not in after. Both may be nil.
func removedNodeIDs(before, after *registry.Workflow) []string {
	if before == nil {
		return nil
	}
	var dropped []string
	for _, node := range before.Triggers {
		if after.Trigger(node.NodeID) == nil {
			dropped = append(dropped, node.NodeID)
		}
	}
	return dropped
}

// DeleteWorkflow deletes a workflow and the secrets of its nodes. It fails with ErrNotFound if
// there is no such workflow.
func (e *Editor) DeleteWorkflow(ctx context.Context, id string) error {
	var nodes []string
	err := e.storeAndConfirm(ctx, func(ctx context.Context) (uint64, error) {
		have, ok := e.index.Workflow(id)
		if !ok {
			return 0, workflowNotFound(id)
		}
		if err := checkWorkflowPreconditions(ctx, have.Record); err != nil {
			return 0, err
		}
		nodes = removedNodeIDs(have.Record, nil)
		return e.removeRecord(ctx, registry.WorkflowPrefix+id, have.Revision)
	})
	return e.deleteSecretsOfRemovedNodes(ctx, id, nodes, err)
}

// prepareWorkflowChange must be called before a changed workflow is stored. It checks the
// conditions in ctx and whether the workflow may change its queue, and adds lanes to the queue if
// an order key needs them. have is zero if the workflow is new.
func (e *Editor) prepareWorkflowChange(
	ctx context.Context, have Versioned[*registry.Workflow], after *registry.Workflow,
) error {
	if err := checkWorkflowPreconditions(ctx, have.Record); err != nil {
		return err
	}
	if err := e.checkWorkflowQueueChange(ctx, have, after); err != nil {
		return err
	}
	return e.prepareOrderKeys(ctx, have.Record, after)
}
