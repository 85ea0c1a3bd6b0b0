package edit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/filter"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/consistency"
)

// WorkflowSpec is the part of a workflow that an operator sets.
type WorkflowSpec struct {
	ID        string
	AccountID string
	Name      string
	Queue     string              // "" means the default queue
	RateLimit *registry.RateLimit // nil means the plan's rate limit
	Triggers  []TriggerSpec       // all nodes: a node that is left out is deleted
	// Within is the only account in which an existing workflow may be; a workflow of another
	// account is reported as not found. "" means any account.
	Within string
	// IfNew makes the change fail with ErrChangedSince if the workflow exists, unless it already is
	// as requested.
	IfNew bool
}

type versionKey struct{}

// IfUpdatedAt returns a context whose changes of a workflow fail with ErrChangedSince unless the
// workflow was last changed at that time, to the microsecond. A change that finds the workflow
// already as requested does not fail, so it can be repeated. The zero time means that any version
// is changed.
func IfUpdatedAt(ctx context.Context, at time.Time) context.Context {
	return context.WithValue(ctx, versionKey{}, at)
}

type ifAccountKey struct{}

// IfAccount returns a context whose changes of an account fail with ErrChangedSince unless holds
// returns true for the existing account. The argument of holds is nil if there is no account. A
// change that finds the account already as requested does not fail.
func IfAccount(ctx context.Context, holds func(*registry.Account) bool) context.Context {
	return context.WithValue(ctx, ifAccountKey{}, holds)
}

// accountHolds checks an account that is about to be changed against IfAccount. a is nil if there
// is no account.
func accountHolds(ctx context.Context, a *registry.Account) error {
	if holds, ok := ctx.Value(ifAccountKey{}).(func(*registry.Account) bool); ok && !holds(a) {
		return ErrChangedSince
	}
	return nil
}

// unchanged checks a workflow that is about to be changed against IfUpdatedAt. w is nil if there is
// no workflow.
func unchanged(ctx context.Context, w *registry.Workflow) error {
	at, _ := ctx.Value(versionKey{}).(time.Time)
	if at.IsZero() || w != nil && w.UpdatedAt.UnixMicro() == at.UnixMicro() {
		return nil
	}
	return ErrChangedSince
}

// TriggerSpec is the part of a trigger node that an operator sets.
type TriggerSpec struct {
	NodeID        string
	Name          string
	SamplePayload []byte // one JSON text; nil leaves it unchanged

	TriggerSettings
}

// TriggerSettings are the settings with which a node handles requests. They are set as a whole: a
// setting that is left out is removed.
type TriggerSettings struct {
	// Filter selects the requests that start an execution: see package filter. nil or null selects
	// all.
	Filter []byte
	// OrderKey is the place of a request whose value is its order key. "" means that the executions
	// have no order.
	OrderKey string
	// Answer is how an answer waits for the end of its execution. nil means that it does not.
	Answer *registry.Answer
}

// MaxWaitSeconds is the maximum time for which an answer waits for the end of its execution.
// Senders and proxies give up after 30 s.
const MaxWaitSeconds = 25

// check compiles the settings. at returns the path of a field.
func (s TriggerSettings) check(at func(field string) string) error {
	var problems []error
	if s.Answer != nil && (s.Answer.WaitSeconds < 1 || s.Answer.WaitSeconds > MaxWaitSeconds) {
		problems = append(problems, &InvalidError{
			at("answer.waitSeconds"),
			fmt.Sprintf("must be 1 to %d, not %d", MaxWaitSeconds, s.Answer.WaitSeconds),
		})
	}
	if isSet(s.Filter) {
		if _, err := filter.Parse(s.Filter); err != nil {
			problems = append(problems, &InvalidError{at("filter"), err.Error()})
		}
	}
	if s.OrderKey != "" {
		if _, err := filter.ParseKey(s.OrderKey); err != nil {
			problems = append(problems, &InvalidError{at("orderKey"), err.Error()})
		}
	}
	return errors.Join(problems...)
}

// needs returns the capabilities that an ingress needs for the settings that have, the existing
// node, does not have already. have may be nil.
func (s TriggerSettings) needs(have *registry.Trigger) (needed []consistency.Capability) {
	var before, after registry.Trigger
	if have != nil {
		before = *have
	}
	if s.into(&after); after.Filter != "" && after.Filter != before.Filter {
		needed = append(needed, consistency.Filters)
	}
	if after.Answer != nil && before.Answer == nil {
		needed = append(needed, consistency.Answers)
	}
	return needed
}

// into stores the settings, which were checked, in a node.
func (s TriggerSettings) into(node *registry.Trigger) {
	node.Filter, node.OrderKey, node.Answer = "", s.OrderKey, s.Answer.Clone()
	if isSet(s.Filter) {
		if f, err := filter.Parse(s.Filter); err == nil {
			node.Filter = f.String()
		}
	}
}

// settingsOf returns the settings of a node.
func settingsOf(node *registry.Trigger) (s TriggerSettings) {
	s.OrderKey, s.Answer = node.OrderKey, node.Answer.Clone()
	if node.Filter != "" {
		s.Filter = []byte(node.Filter)
	}
	return s
}

// isSet reports whether a JSON value is present and is not null.
func isSet(text []byte) bool {
	text = bytes.TrimSpace(text)
	return len(text) > 0 && string(text) != "null"
}

func (s *WorkflowSpec) check() error {
	if s.Queue == "" {
		s.Queue = execution.DefaultQueue
	}
	problems := []error{
		checkID("id", s.ID), checkID("accountId", s.AccountID), checkID("queue", s.Queue),
		checkText("name", s.Name),
	}
	if s.RateLimit != nil {
		if err := checkRateLimit(s.RateLimit.Requests,
			int64(s.RateLimit.Window/time.Second)); err != nil {
			problems = append(problems, &InvalidError{"rateLimit", err.Error()})
		}
	}
	if n := len(s.Triggers); n < 1 || n > MaxTriggers {
		problems = append(problems, &InvalidError{
			"triggers",
			fmt.Sprintf("a workflow has 1 to %d webhook trigger nodes, not %d", MaxTriggers, n),
		})
	}
	seen := map[string]bool{}
	for i, t := range s.Triggers {
		at := func(field string) string { return fmt.Sprintf("triggers[%d].%s", i, field) }
		problems = append(problems, checkID(at("nodeId"), t.NodeID), checkText(at("name"), t.Name))
		if seen[t.NodeID] {
			problems = append(problems, &InvalidError{
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

// PutWorkflow creates an inactive workflow or replaces one, and reports whether it created the
// workflow. A node that stays keeps its tokens, and its sample payload if none is given. A new node
// gets a token. It fails with ErrIngressTooOld if a live ingress cannot enforce a new setting.
func (e *Editor) PutWorkflow(
	ctx context.Context, spec WorkflowSpec,
) (w *registry.Workflow, created bool, err error) {
	if err := spec.check(); err != nil {
		return nil, false, err
	}
	return e.replace(ctx, spec.ID, func(*registry.Workflow) (WorkflowSpec, error) {
		return spec, nil
	})
}

// ChangeWorkflow replaces an existing workflow after modify has changed it, in one step: nothing
// that another call has stored is lost. modify is called again if the workflow changes meanwhile.
func (e *Editor) ChangeWorkflow(
	ctx context.Context, id string, modify func(*WorkflowSpec) error,
) (*registry.Workflow, error) {
	w, _, err := e.replace(ctx, id, func(have *registry.Workflow) (spec WorkflowSpec, err error) {
		if have == nil {
			return spec, noWorkflow(id)
		}
		spec = specOf(have)
		if err := modify(&spec); err != nil {
			return spec, err
		}
		spec.ID = id
		return spec, spec.check()
	})
	return w, err
}

// specOf returns the part of a workflow that an operator sets.
func specOf(w *registry.Workflow) WorkflowSpec {
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
			TriggerSettings: settingsOf(t),
		})
	}
	return spec
}

// hasSamples reports whether a sample payload is given. Sample payloads are stored separately,
// before the workflow.
func (s *WorkflowSpec) hasSamples() bool {
	return slices.ContainsFunc(s.Triggers, func(t TriggerSpec) bool {
		return t.SamplePayload != nil
	})
}

// requireCapabilities returns an error if an ingress is too old for a setting of a workflow's new
// triggers.
func (e *Editor) requireCapabilities(have *registry.Workflow, triggers []TriggerSpec) error {
	for _, t := range triggers {
		for _, needed := range t.needs(have.Trigger(t.NodeID)) {
			if err := e.requireCapability(needed); err != nil {
				return err
			}
		}
	}
	return nil
}

// moveTo gives a workflow to an account. It fails for an active workflow of another account.
func moveTo(account *registry.Account, w *registry.Workflow) error {
	if w.AccountID == account.ID {
		return nil
	}
	if w.Active {
		return &InvalidError{
			"accountId",
			fmt.Sprintf("the workflow is active in account %q; deactivate it before it moves",
				w.AccountID),
		}
	}
	// Transitions are counted by account: none of this account's transitions so far concerns this
	// workflow.
	w.AccountID, w.Transition = account.ID, account.LastTransition.Number
	return nil
}

// replace creates or replaces a workflow. wanted returns the new workflow; its argument is the
// existing workflow, or nil.
func (e *Editor) replace(
	ctx context.Context, id string, wanted func(have *registry.Workflow) (WorkflowSpec, error),
) (w *registry.Workflow, created bool, err error) {
	var dropped []string
	err = e.change(ctx, func() (uint64, error) {
		var added []secretsOf
		have, ok := e.directory.Workflow(id)
		spec, err := wanted(have.Record)
		if err != nil {
			return 0, err
		}
		account, accountExists := e.directory.Account(spec.AccountID)
		if !accountExists {
			return 0, noSuchAccount(spec.AccountID)
		}
		created = !ok
		if ok && spec.Within != "" && have.Record.AccountID != spec.Within {
			return 0, noWorkflow(spec.ID)
		}
		if w = (&registry.Workflow{ID: spec.ID, CreatedAt: e.now()}); ok {
			w = have.Record.Clone()
		}
		if ok && spec.IfNew && w.AccountID != spec.AccountID {
			return 0, ErrChangedSince
		}
		if err := moveTo(account.Record, w); err != nil {
			return 0, err
		}
		w.Closed = false
		w.Name, w.Queue, w.RateLimit = spec.Name, spec.Queue, registry.RateLimit{}
		if spec.RateLimit != nil {
			w.RateLimit = *spec.RateLimit
		}
		if err := unchanged(ctx, have.Record); err != nil && spec.hasSamples() {
			return 0, err
		}
		if err := e.requireCapabilities(w, spec.Triggers); err != nil {
			return 0, err
		}
		if added, err = e.mergeTriggers(ctx, w, spec.Triggers); err != nil {
			return 0, err
		}
		if ok && registry.Equal(w, have.Record) {
			return have.Revision, errUnchanged
		}
		if spec.IfNew && ok {
			return 0, ErrChangedSince
		}
		if err := e.mayStore(ctx, have.Record, w); err != nil {
			return 0, err
		}
		dropped = droppedNodes(have.Record, w)
		w.UpdatedAt = e.now()
		revision, err := e.put(ctx, e.registry, registry.WorkflowPrefix+id, w, have.Revision)
		if err != nil {
			return 0, err
		}
		return revision, e.storeSecretsAgain(ctx, id, added)
	})
	if err = e.forget(ctx, id, dropped, err); err == nil {
		err = e.checkOwner(ctx, w, created)
	}
	return w, created, err
}

// mergeTriggers gives w the nodes of specs, with their existing tokens or new ones. It returns the
// secrets of new nodes.
func (e *Editor) mergeTriggers(
	ctx context.Context, w *registry.Workflow, specs []TriggerSpec,
) (added []secretsOf, err error) {
	nodes := make([]registry.Trigger, 0, len(specs))
	for _, spec := range specs {
		node := w.Trigger(spec.NodeID)
		if node == nil {
			// The token is stored first: a hash without a known token would be useless.
			token, err := e.addToken(ctx, w.ID, spec.NodeID, nil)
			if err != nil {
				return nil, err
			}
			node = &registry.Trigger{
				NodeID: spec.NodeID,
				Tokens: []registry.NodeToken{{Hash: registry.HashToken(token.Text)}},
			}
			added = append(added, secretsOf{spec.NodeID, token, spec.SamplePayload})
		}
		if spec.SamplePayload != nil {
			store := e.storeSample
			if len(added) > 0 && added[len(added)-1].nodeID == spec.NodeID {
				store = e.storeSampleOfNew
			}
			if err := store(ctx, w.ID, spec.NodeID, spec.SamplePayload); err != nil {
				return nil, err
			}
		}
		node.Name = spec.Name
		spec.into(node)
		nodes = append(nodes, *node)
	}
	w.Triggers = nodes
	return added, nil
}

func droppedNodes(before, after *registry.Workflow) []string {
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

// DeleteWorkflow deletes a workflow and its secrets.
func (e *Editor) DeleteWorkflow(ctx context.Context, id string) error {
	var nodes []string
	err := e.change(ctx, func() (uint64, error) {
		have, ok := e.directory.Workflow(id)
		if !ok {
			return 0, noWorkflow(id)
		}
		if err := unchanged(ctx, have.Record); err != nil {
			return 0, err
		}
		nodes = droppedNodes(have.Record, nil)
		return e.remove(ctx, registry.WorkflowPrefix+id, have.Revision)
	})
	return e.forget(ctx, id, nodes, err)
}
