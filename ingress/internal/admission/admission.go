// Package admission decides whether a request may start an execution. It does no I/O and uses
// neither HTTP nor NATS: callers pass in the relevant parts of the request and the time.
package admission

import (
	"crypto/subtle"
	"time"

	"github.com/google/uuid"

	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/webhook"
)

// Registry looks up workflows by ID. The second result of Lookup is false if there is no such
// workflow.
type Registry interface {
	Lookup(workflowID string) (registry.WorkflowView, bool)
}

// Admission decides whether a request may start an execution. It is safe for concurrent use.
type Admission struct {
	registry Registry
	limiter  *Limiter
}

// New returns an Admission that looks up workflows in r and counts requests in limiter.
func New(r Registry, limiter *Limiter) *Admission {
	return &Admission{registry: r, limiter: limiter}
}

// Trigger is the workflow and the trigger node that a request addresses by its path and token.
type Trigger struct {
	Workflow *registry.CompiledWorkflow
	Node     *registry.TriggerNode // the trigger node that the token belongs to
	NodeID   string                // the ID of Node
	TokenID  string                // the ID of the token
	view     registry.WorkflowView
}

// DeliveryID is the delivery ID of a request, with information about its origin.
type DeliveryID struct {
	ID      string // the delivery ID as sent; "" means that the request has none
	Derived bool   // the ID comes from the body, or is a hash
	Signed  bool   // the ID is covered by the sender's signature
}

// executionIDKey returns the key from which an execution's ID is computed. Derived and signed
// delivery IDs get distinct keys, so that delivery IDs of different kinds never result in the same
// execution ID.
func (d DeliveryID) executionIDKey() string {
	switch {
	case d.Signed:
		return execution.MarkSignedID(d.ID)
	case d.Derived:
		return execution.MarkDerivedID(d.ID)
	default:
		return d.ID
	}
}

// Find looks up the workflow, and the trigger node that the token belongs to. It returns a refusal
// if there is no such workflow, or if the token is not valid for any of its nodes at the given
// time.
func (a *Admission) Find(workflowID, token string, at time.Time) (Trigger, *Refusal) {
	view, ok := a.registry.Lookup(workflowID)
	if !ok {
		return Trigger{}, &Refusal{Code: webhook.CodeWorkflowNotFound}
	}
	node, tokenID := nodeOfToken(view.Workflow, token, at)
	if node == nil {
		return Trigger{}, &Refusal{Code: webhook.CodeTokenInvalid}
	}
	return Trigger{
		Workflow: view.Workflow,
		Node:     node,
		NodeID:   node.ID,
		TokenID:  tokenID,
		view:     view,
	}, nil
}

// CheckPlan returns a refusal if the account's plan does not allow the request, or nil.
func (t Trigger) CheckPlan() *Refusal {
	switch {
	case !t.view.PlanHasWebhooks():
		return &Refusal{Code: webhook.CodeWebhooksNotInPlan}
	case t.Workflow.Active && !t.view.WithinPlan:
		return &Refusal{Code: webhook.CodePlanLimitExceeded}
	}
	return nil
}

// RequestsPerMinute returns the number of requests per minute that the current rate limit allows.
// The result is at least 1, or 0 if there is no limit.
func (t Trigger) RequestsPerMinute() int {
	limit := t.view.RateLimit()
	if limit.Requests <= 0 || limit.Window <= 0 {
		return 0
	}
	return max(1, int(float64(limit.Requests)*float64(time.Minute)/float64(limit.Window)))
}

// ApplyLimits counts a request against the rate limit and checks the account's daily bytes. If
// either limit is reached, it counts nothing, and returns a refusal with the time to wait until
// both limits permit the request. The caller must have checked the plan. bodyBytes is the length of
// the body; a negative value means unknown.
func (a *Admission) ApplyLimits(t Trigger, bodyBytes int64, at time.Time) *Refusal {
	if perDay := t.bytesPerDay(); perDay > 0 {
		// This check comes first because it counts nothing.
		if wait := a.limiter.waitTimeForBytes(t.Workflow.AccountID, perDay, bodyBytes,
			at); wait > 0 {
			wait = max(wait, a.limiter.waitTimeForRequest(t.Workflow.ID, t.view.RateLimit(), at))
			return &Refusal{Code: webhook.CodeRateLimited, RetryAfter: wait}
		}
	}
	// Pass the workflow ID from the registry. The one from the request is a substring of the
	// request line, so keeping it would keep the token in memory.
	if wait := a.limiter.chargeRequest(t.Workflow.ID, t.view.RateLimit(), at); wait > 0 {
		return &Refusal{Code: webhook.CodeRateLimited, RetryAfter: wait}
	}
	return nil
}

// InactiveRefusal returns the refusal of a request to an inactive workflow. The refusal contains
// the ID of the execution record of the request.
func (t Trigger) InactiveRefusal(d DeliveryID) *Refusal {
	id := newExecutionID()
	if d.ID != "" {
		id = execution.RejectedIDForDelivery(t.Workflow.ID, t.NodeID, d.executionIDKey())
	}
	return &Refusal{Code: webhook.CodeWorkflowInactive, ExecutionID: id}
}

// bytesPerDay returns the plan's limit on an account's bytes per day; 0 means no limit.
func (t Trigger) bytesPerDay() int64 { return t.view.Plan.BytesPerDay }

// CountBody counts the bytes read from an admitted request's body against the account's limit.
func (a *Admission) CountBody(t Trigger, bytes int, at time.Time) {
	a.limiter.AddBytes(t.Workflow.AccountID, t.bytesPerDay(), int64(bytes), at)
}

// Workflow returns the current record of a workflow, or nil if it does not exist.
func (a *Admission) Workflow(workflowID string) *registry.CompiledWorkflow {
	view, ok := a.registry.Lookup(workflowID)
	if !ok {
		return nil
	}
	return view.Workflow
}

// InternedWorkflowID returns the registry's copy of a workflow's ID, or "" if the workflow does not
// exist. Unlike workflowID, which is a part of the request line, the copy does not keep the request
// line in memory.
func (a *Admission) InternedWorkflowID(workflowID string) string {
	view, ok := a.registry.Lookup(workflowID)
	if !ok {
		return ""
	}
	return view.Workflow.ID // not the argument, which would keep the request line in memory
}

// ExecutionID returns the ID of the execution that an admitted request starts: a hash of the
// delivery ID, or a random ID if the request has none.
func (t Trigger) ExecutionID(d DeliveryID) string {
	if d.ID == "" {
		return newExecutionID()
	}
	return execution.IDForDelivery(t.Workflow.ID, t.NodeID, d.executionIDKey())
}

// nodeOfToken returns the node that an unexpired token belongs to, and the token's ID. If there is
// none, node is nil.
func nodeOfToken(
	w *registry.CompiledWorkflow, token string, at time.Time,
) (node *registry.TriggerNode, tokenID string) {
	hash := registry.HashToken(token)
	now := at.UnixNano()
	for i := range w.Nodes {
		for _, t := range w.Nodes[i].Tokens {
			if subtle.ConstantTimeCompare(hash[:], t.Hash[:]) == 1 &&
				(t.ExpiresAt == 0 || now < t.ExpiresAt) {
				return &w.Nodes[i], hash.ID()
			}
		}
	}
	return nil, ""
}

// newExecutionID returns a random execution ID: a version 7 UUID.
func newExecutionID() string { return uuid.Must(uuid.NewV7()).String() }
