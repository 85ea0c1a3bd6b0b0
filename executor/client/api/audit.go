package api

import "time"

// AuditEntry is an entry of the audit log: one action, with its actor and its time.
type AuditEntry struct {
	// ID identifies the entry.
	ID string `json:"id"`
	// At is when the action took place.
	At time.Time `json:"at"`
	// Actor is who requested the action.
	Actor Actor `json:"actor"`
	// Action says what was done, for example workflow.activate.
	Action string `json:"action" example:"workflow.activate"`
	// AccountID is the ID of the account that the action concerns. "" means none.
	AccountID string `json:"accountId,omitempty"`
	// WorkflowID is the ID of the workflow that the action concerns. "" means none.
	WorkflowID string `json:"workflowId,omitempty"`
	// NodeID is the ID of the trigger node that the action concerns. "" means none.
	NodeID  string        `json:"nodeId,omitempty"`
	Changes []AuditChange `json:"changes" nullable:"false" doc:"The fields that were changed, with their values before and after. Secrets are never included."`
}

// Actor identifies who performed an action.
type Actor struct {
	Kind string `json:"kind" doc:"How the actor was authenticated: admin-token, key or user. system: hookstart made the change by itself. unknown: a sign-in was refused." example:"key"`
	ID   string `json:"id" doc:"The ID of the key, or of the user at the identity provider. Empty: the admin token."`
	Name string `json:"name" doc:"The name of the key or the user, for people to read."`
}

// AuditChange describes the change of one field.
type AuditChange struct {
	// Field is the path of the changed field in the object that the action changed, such as a
	// workflow.
	Field string `json:"field" example:"triggers[webhook].name"`
	From  any    `json:"from,omitempty" doc:"The value before the change. Absent: the field was not set."`
	To    any    `json:"to,omitempty" doc:"The value after the change. Absent: the field is not set any more."`
}
