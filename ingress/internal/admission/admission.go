// Package admission decides whether a request may start an execution. It is pure:
// what it knows of a request and the time go in, a verdict comes out. It speaks
// neither HTTP nor NATS.
package admission

import (
	"crypto/subtle"
	"time"

	"github.com/google/uuid"

	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/webhook"
)

// Registry is what admission looks workflows up in.
type Registry interface {
	Lookup(workflowID string) (registry.View, bool)
}

// Admission decides. It is safe for concurrent use.
type Admission struct {
	registry Registry
	limits   *Limits
}

// New decides by what is in the registry, and counts in limits.
func New(r Registry, limits *Limits) *Admission { return &Admission{registry: r, limits: limits} }

// Request is what admission needs to know.
type Request struct {
	WorkflowID string
	Token      string
	DeliveryID string // the one in force, as sent; "" for none
	BodyBytes  int64  // the declared length of the body; negative: not declared
	At         time.Time
}

// Admitted is a request whose workflow and node are known.
type Admitted struct {
	Workflow    *registry.Workflow
	NodeID      string
	TokenID     string
	bytesPerDay int64 // of the account
}

// Admit checks what can be checked without the body, in the contract's order: the
// workflow, the token, the plan, the rate, whether the workflow is active, and the
// delivery ID. Refused as inactive, a request still has its Admitted, to be recorded
// under the refusal's execution ID.
func (a *Admission) Admit(r Request) (Admitted, *Refusal) {
	if !execution.ValidName(r.WorkflowID) {
		return Admitted{}, &Refusal{Code: webhook.WorkflowNotFound}
	}
	view, found := a.registry.Lookup(r.WorkflowID)
	if !found {
		return Admitted{}, &Refusal{Code: webhook.WorkflowNotFound}
	}
	nodeID, tokenID, opened := open(view.Workflow, r.Token, r.At)
	if !opened {
		return Admitted{}, &Refusal{Code: webhook.TokenInvalid}
	}
	admitted := Admitted{Workflow: view.Workflow, NodeID: nodeID, TokenID: tokenID}

	switch {
	case !view.PlanHasWebhooks():
		return admitted, &Refusal{Code: webhook.WebhooksNotInPlan}
	case view.Workflow.Active && !view.WithinPlan:
		return admitted, &Refusal{Code: webhook.PlanLimitExceeded}
	}
	admitted.bytesPerDay = view.Plan.BytesPerDay
	// First what is looked at only: a request that is refused counts nowhere.
	if perDay := admitted.bytesPerDay; perDay > 0 {
		if wait := a.limits.waitForBytes(view.Workflow.AccountID, perDay, r.BodyBytes, r.At); wait > 0 {
			return admitted, &Refusal{Code: webhook.RateLimited, RetryAfter: wait}
		}
	}
	// By the registry's ID: the sender's is a part of the request line, which would stay in
	// memory, token and all.
	if wait := a.limits.take(view.Workflow.ID, view.Limit(), r.At); wait > 0 {
		return admitted, &Refusal{Code: webhook.RateLimited, RetryAfter: wait}
	}
	if !view.Workflow.Active {
		id := newID()
		if r.DeliveryID != "" {
			id = execution.RejectedIDForDelivery(r.WorkflowID, nodeID, r.DeliveryID)
		}
		return admitted, &Refusal{Code: webhook.WorkflowInactive, ExecutionID: id}
	}
	if len(r.DeliveryID) > execution.MaxDeliveryID {
		return admitted, &Refusal{Code: webhook.DeliveryIDInvalid}
	}
	return admitted, nil
}

// CountBody counts a body of an admitted request, or as much of it as was read, against the
// bytes of the account's day.
func (a *Admission) CountBody(of Admitted, bytes int, at time.Time) {
	a.limits.AddBytes(of.Workflow.AccountID, of.bytesPerDay, int64(bytes), at)
}

// Known returns the ID of a workflow that exists, "" for none.
func (a *Admission) Known(workflowID string) string {
	view, found := a.registry.Lookup(workflowID)
	if !found {
		return ""
	}
	return view.Workflow.ID // not the sender's string, which would keep the whole request in memory
}

// ExecutionID is the ID of the execution that an admitted request starts: a hash of
// its delivery, so that a repeat has the same, or a random one.
func (a Admitted) ExecutionID(deliveryID string) string {
	if deliveryID == "" {
		return newID()
	}
	return execution.IDForDelivery(a.Workflow.ID, a.NodeID, deliveryID)
}

// open finds the node that a token opens.
func open(w *registry.Workflow, token string, at time.Time) (nodeID, tokenID string, opened bool) {
	hash := registry.HashToken(token)
	now := at.UnixNano()
	for i := range w.Nodes {
		for _, t := range w.Nodes[i].Tokens {
			if subtle.ConstantTimeCompare(hash[:], t.Hash[:]) == 1 && (t.ExpiresAt == 0 || now < t.ExpiresAt) {
				return w.Nodes[i].ID, hash.ID(), true
			}
		}
	}
	return "", "", false
}

// newID is a random execution ID, a UUID of version 7.
func newID() string { return uuid.Must(uuid.NewV7()).String() }
