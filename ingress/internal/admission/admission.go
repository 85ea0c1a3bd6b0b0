// Package admission decides whether a request may start an execution. It is pure: it gets the facts
// of the request and the time, and returns a verdict. It uses neither HTTP nor NATS.
package admission

import (
	"crypto/subtle"
	"time"

	"github.com/google/uuid"

	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/webhook"
)

// Registry is the source of workflows.
type Registry interface {
	Lookup(workflowID string) (registry.View, bool)
}

// Admission decides about requests. It is safe for concurrent use.
type Admission struct {
	registry Registry
	limits   *Limits
}

// New returns an Admission that looks workflows up in r and counts requests in limits.
func New(r Registry, limits *Limits) *Admission { return &Admission{registry: r, limits: limits} }

// Admitted is a request whose workflow and node are known.
type Admitted struct {
	Workflow *registry.Webhook
	Node     *registry.Node // the trigger node to which the token belongs
	NodeID   string         // the ID of Node
	TokenID  string         // the ID of the token
	view     registry.View
}

// Delivery is the delivery ID in force.
type Delivery struct {
	ID      string // the delivery ID as sent; "" means that the request has none
	Derived bool   // the ID was read from the body, or is a hash
	Signed  bool   // the ID is covered by the sender's signature
}

// key returns the text that stands for the delivery ID when an execution ID is made. The keys of
// derived and of signed IDs differ from the execution IDs of all other delivery IDs.
func (d Delivery) key() string {
	switch {
	case d.Signed:
		return execution.SignedDelivery(d.ID)
	case d.Derived:
		return execution.DerivedDelivery(d.ID)
	default:
		return d.ID
	}
}

// Find returns the workflow, and the node to which the token belongs.
func (a *Admission) Find(workflowID, token string, at time.Time) (Admitted, *Refusal) {
	view, ok := a.registry.Lookup(workflowID)
	if !ok {
		return Admitted{}, &Refusal{Code: webhook.WorkflowNotFound}
	}
	node, tokenID := nodeOfToken(view.Workflow, token, at)
	if node == nil {
		return Admitted{}, &Refusal{Code: webhook.TokenInvalid}
	}
	return Admitted{
		Workflow: view.Workflow,
		Node:     node,
		NodeID:   node.ID,
		TokenID:  tokenID,
		view:     view,
	}, nil
}

// Plan checks what the account's plan allows.
func (a Admitted) Plan() *Refusal {
	switch {
	case !a.view.PlanHasWebhooks():
		return &Refusal{Code: webhook.WebhooksNotInPlan}
	case a.Workflow.Active && !a.view.WithinPlan:
		return &Refusal{Code: webhook.PlanLimitExceeded}
	}
	return nil
}

// PerMinute returns the number of requests per minute that the rate limit in force allows, at least
// 1, or 0 if there is no limit.
func (a Admitted) PerMinute() int {
	limit := a.view.Limit()
	if limit.Requests <= 0 || limit.Window <= 0 {
		return 0
	}
	return max(1, int(float64(limit.Requests)*float64(time.Minute)/float64(limit.Window)))
}

// Limit counts a request against the limits, or returns how long it has to wait. The caller must
// have checked the plan. bodyBytes is the length of the body; a negative value means that it is not
// known. A refused request is not counted.
func (a *Admission) Limit(admitted Admitted, bodyBytes int64, at time.Time) *Refusal {
	if perDay := admitted.bytesPerDay(); perDay > 0 {
		// Checked first, because the check counts nothing.
		if wait := a.limits.waitForBytes(admitted.Workflow.AccountID, perDay, bodyBytes,
			at); wait > 0 {
			return &Refusal{Code: webhook.RateLimited, RetryAfter: wait}
		}
	}
	// Use the string of the registry. The one from the request is a substring of the request line
	// and would keep the token alive in memory.
	if wait := a.limits.takeRequest(admitted.Workflow.ID, admitted.view.Limit(), at); wait > 0 {
		return &Refusal{Code: webhook.RateLimited, RetryAfter: wait}
	}
	return nil
}

// Inactive refuses a request to an inactive workflow, with the ID under which the request is
// recorded.
func (a Admitted) Inactive(d Delivery) *Refusal {
	id := newID()
	if d.ID != "" {
		id = execution.RejectedIDForDelivery(a.Workflow.ID, a.NodeID, d.key())
	}
	return &Refusal{Code: webhook.WorkflowInactive, ExecutionID: id}
}

// bytesPerDay returns the limit of the account's plan in bytes.
func (a Admitted) bytesPerDay() int64 { return a.view.Plan.BytesPerDay }

// CountBody counts the bytes of an admitted request's body that were read against the account's
// limit.
func (a *Admission) CountBody(admitted Admitted, bytes int, at time.Time) {
	a.limits.AddBytes(admitted.Workflow.AccountID, admitted.bytesPerDay(), int64(bytes), at)
}

// Workflow returns the present record of a workflow, or nil if it does not exist.
func (a *Admission) Workflow(workflowID string) *registry.Webhook {
	view, ok := a.registry.Lookup(workflowID)
	if !ok {
		return nil
	}
	return view.Workflow
}

// Known returns the ID of an existing workflow, or "" if it does not exist.
func (a *Admission) Known(workflowID string) string {
	view, ok := a.registry.Lookup(workflowID)
	if !ok {
		return ""
	}
	return view.Workflow.ID // not the sender's string, which would keep the whole request in memory
}

// ExecutionID returns the ID of the execution that an admitted request starts: a hash of its
// delivery ID, or a random one without a delivery ID.
func (a Admitted) ExecutionID(d Delivery) string {
	if d.ID == "" {
		return newID()
	}
	return execution.IDForDelivery(a.Workflow.ID, a.NodeID, d.key())
}

// nodeOfToken returns the node to which a token belongs, or nil if there is none.
func nodeOfToken(
	w *registry.Webhook, token string, at time.Time,
) (node *registry.Node, tokenID string) {
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

// newID returns a random execution ID, a UUID of version 7.
func newID() string { return uuid.Must(uuid.NewV7()).String() }
