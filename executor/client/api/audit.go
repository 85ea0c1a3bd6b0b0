package api

import "time"

// AuditEntry is an entry of the audit log: one action with its actor and its time.
type AuditEntry struct {
	ID         string        `json:"id"`
	At         time.Time     `json:"at"`
	Actor      Actor         `json:"actor"`
	Action     string        `json:"action" example:"workflow.activate"`
	AccountID  string        `json:"accountId,omitempty"`
	WorkflowID string        `json:"workflowId,omitempty"`
	NodeID     string        `json:"nodeId,omitempty"`
	Changes    []AuditChange `json:"changes" nullable:"false" doc:"What became of which fields. Secrets are never in it."`
}

// Actor is the caller who made a change.
type Actor struct {
	Kind string `json:"kind" doc:"admin-token, key, user; system: nobody asked for it; or unknown: somebody was refused at the sign-in." example:"key"`
	ID   string `json:"id" doc:"The key's, or the user's at the identity provider; empty for the admin token."`
	Name string `json:"name" doc:"For people."`
}

// AuditChange is a field that was changed.
type AuditChange struct {
	Field string `json:"field" example:"triggers[webhook].name"`
	From  any    `json:"from,omitempty" doc:"Left out: it was not set."`
	To    any    `json:"to,omitempty" doc:"Left out: it is not set."`
}
