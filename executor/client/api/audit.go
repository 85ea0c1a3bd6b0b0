package api

import "time"

// AuditEntry is an entry of the audit log: one action with its actor and its time.
type AuditEntry struct {
	// ID identifies the entry.
	ID string `json:"id"`
	// At is the time of the action.
	At time.Time `json:"at"`
	// Actor is the caller who asked for the action.
	Actor Actor `json:"actor"`
	// Action names what was done.
	Action string `json:"action" example:"workflow.activate"`
	// AccountID is the account that the action concerns. "" means none.
	AccountID string `json:"accountId,omitempty"`
	// WorkflowID is the workflow that the action concerns. "" means none.
	WorkflowID string `json:"workflowId,omitempty"`
	// NodeID is the trigger node that the action concerns. "" means none.
	NodeID  string        `json:"nodeId,omitempty"`
	Changes []AuditChange `json:"changes" nullable:"false" doc:"What became of which fields. Secrets are never in it."`
}

// Actor is the caller who made a change.
type Actor struct {
	Kind string `json:"kind" doc:"admin-token, key, user; system: nobody asked for it; or unknown: somebody was refused at the sign-in." example:"key"`
	ID   string `json:"id" doc:"The key's, or the user's at the identity provider; empty for the admin token."`
	Name string `json:"name" doc:"For people."`
}

// AuditChange is a field that was changed.
type AuditChange struct {
	// Field is the path of the field in the record.
	Field string `json:"field" example:"triggers[webhook].name"`
	From  any    `json:"from,omitempty" doc:"Left out: it was not set."`
	To    any    `json:"to,omitempty" doc:"Left out: it is not set."`
}
