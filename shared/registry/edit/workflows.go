package edit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/registry"
)

// WorkflowSpec is what an operator says of a workflow.
type WorkflowSpec struct {
	ID        string
	AccountID string
	Name      string
	Queue     string              // "": the default queue
	RateLimit *registry.RateLimit // nil: the plan's
	Triggers  []TriggerSpec
	// Within is the only account in which one that exists may be; of another one it is not found. Empty: any.
	Within string
	// IfUpdatedAt: only the workflow that was changed last then, to the microsecond, is replaced, else it is
	// ErrChangedSince. One that is already as it shall be is no error. Zero: any is, or a new one is made.
	IfUpdatedAt time.Time
}

// TriggerSpec is what an operator says of a trigger node.
type TriggerSpec struct {
	NodeID        string
	Name          string
	SamplePayload []byte // one JSON text; nil: leave it as it is
}

func (s *WorkflowSpec) check() error {
	if s.Queue == "" {
		s.Queue = execution.DefaultQueue
	}
	problems := []error{
		checkID("id", s.ID), checkID("accountId", s.AccountID), checkID("queue", s.Queue), checkText("name", s.Name),
	}
	if s.RateLimit != nil {
		if err := checkRateLimit(s.rateLimitRecord()); err != nil {
			problems = append(problems, &InvalidError{"rateLimit", err.Error()})
		}
	}
	if n := len(s.Triggers); n < 1 || n > MaxTriggers {
		problems = append(problems, &InvalidError{"triggers", fmt.Sprintf("a workflow has 1 to %d webhook trigger nodes, not %d", MaxTriggers, n)})
	}
	seen := map[string]bool{}
	for i, t := range s.Triggers {
		at := func(field string) string { return fmt.Sprintf("triggers[%d].%s", i, field) }
		problems = append(problems, checkID(at("nodeId"), t.NodeID), checkText(at("name"), t.Name))
		if seen[t.NodeID] {
			problems = append(problems, &InvalidError{at("nodeId"), fmt.Sprintf("%q is there twice", t.NodeID)})
		}
		seen[t.NodeID] = true
		if t.SamplePayload != nil {
			problems = append(problems, checkSample(at("samplePayload"), t.SamplePayload))
		}
	}
	return errors.Join(problems...)
}

func (s *WorkflowSpec) rateLimitRecord() *hookstartv1.RateLimit {
	if s.RateLimit == nil {
		return nil
	}
	return &hookstartv1.RateLimit{Requests: s.RateLimit.Requests, WindowSeconds: int64(s.RateLimit.Window / time.Second)}
}

// PutWorkflow creates a workflow, inactive, or replaces one, and says whether it is
// new. A node that stays keeps its tokens, and its sample payload if none is given;
// a node that is new gets a token.
func (e *Editor) PutWorkflow(ctx context.Context, spec WorkflowSpec) (w *hookstartv1.Workflow, created bool, err error) {
	if err := spec.check(); err != nil {
		return nil, false, err
	}
	var dropped []string
	err = e.change(ctx, func() (uint64, error) {
		var added []secretsOf
		account, exists := e.directory.Account(spec.AccountID)
		if !exists {
			return 0, noSuchAccount(spec.AccountID)
		}
		have, exists := e.directory.Workflow(spec.ID)
		created = !exists
		if exists && spec.Within != "" && have.Record.GetAccountId() != spec.Within {
			return 0, noWorkflow(spec.ID)
		}
		if exists {
			w = proto.CloneOf(have.Record)
		} else {
			w = &hookstartv1.Workflow{Id: spec.ID, CreatedAt: timestamppb.New(e.now())}
		}
		if w.GetAccountId() != spec.AccountID {
			if w.GetActive() {
				return 0, &InvalidError{"accountId", fmt.Sprintf("the workflow is active in account %q; deactivate it before it moves", w.GetAccountId())}
			}
			// Transitions are counted by account: none of this one's so far is about this workflow.
			w.AccountId = spec.AccountID
			w.Transition = account.Record.GetLastTransition().GetNumber()
		}
		w.Name, w.Queue, w.RateLimit = spec.Name, spec.Queue, spec.rateLimitRecord()
		if added, err = e.mergeTriggers(ctx, w, spec.Triggers); err != nil {
			return 0, err
		}
		if exists && proto.Equal(w, have.Record) {
			return have.Revision, errUnchanged
		}
		if !spec.IfUpdatedAt.IsZero() && (!exists || have.Record.GetUpdatedAt().AsTime().UnixMicro() != spec.IfUpdatedAt.UnixMicro()) {
			return 0, fmt.Errorf("workflow %q: %w", spec.ID, ErrChangedSince)
		}
		dropped = droppedNodes(have.Record, w)
		w.UpdatedAt = timestamppb.New(e.now())
		revision, err := e.put(ctx, e.registry, registry.WorkflowPrefix+spec.ID, w, have.Revision)
		if err != nil {
			return 0, err
		}
		return revision, e.secure(ctx, spec.ID, added)
	})
	if err = e.forget(ctx, spec.ID, dropped, err); err == nil {
		err = e.checkOwner(ctx, w, created)
	}
	return w, created, err
}

// mergeTriggers gives w the nodes of specs, with the tokens that they have or new ones. It
// returns the secrets of those that are new.
func (e *Editor) mergeTriggers(ctx context.Context, w *hookstartv1.Workflow, specs []TriggerSpec) (added []secretsOf, err error) {
	nodes := make([]*hookstartv1.TriggerNode, 0, len(specs))
	for _, spec := range specs {
		node := triggerNode(w, spec.NodeID)
		if node == nil {
			// The token is stored first: a hash whose token nobody knows would be of no use.
			token, err := e.addToken(ctx, w.GetId(), spec.NodeID, nil)
			if err != nil {
				return nil, err
			}
			node = &hookstartv1.TriggerNode{NodeId: spec.NodeID, Tokens: []*hookstartv1.TokenHash{hashRecord(token)}}
			added = append(added, secretsOf{spec.NodeID, token, spec.SamplePayload})
		}
		if spec.SamplePayload != nil {
			store := e.storeSample
			if len(added) > 0 && added[len(added)-1].nodeID == spec.NodeID {
				store = e.storeSampleOfNew
			}
			if err := store(ctx, w.GetId(), spec.NodeID, spec.SamplePayload); err != nil {
				return nil, err
			}
		}
		node.Name = spec.Name
		nodes = append(nodes, node)
	}
	w.Triggers = nodes
	return added, nil
}

func triggerNode(w *hookstartv1.Workflow, nodeID string) *hookstartv1.TriggerNode {
	for _, node := range w.GetTriggers() {
		if node.GetNodeId() == nodeID {
			return node
		}
	}
	return nil
}

func droppedNodes(before, after *hookstartv1.Workflow) []string {
	var dropped []string
	for _, node := range before.GetTriggers() {
		if triggerNode(after, node.GetNodeId()) == nil {
			dropped = append(dropped, node.GetNodeId())
		}
	}
	return dropped
}

// DeleteWorkflow deletes a workflow and its secrets.
func (e *Editor) DeleteWorkflow(ctx context.Context, id string) error {
	var nodes []string
	err := e.change(ctx, func() (uint64, error) {
		have, exists := e.directory.Workflow(id)
		if !exists {
			return 0, noWorkflow(id)
		}
		nodes = droppedNodes(have.Record, nil)
		return e.remove(ctx, registry.WorkflowPrefix+id, have.Revision)
	})
	return e.forget(ctx, id, nodes, err)
}
