package store

import "time"

// AuditEntry is one action with its actor and its time. It holds no secret.
type AuditEntry struct {
	ID         string // unique; of several entries with one ID, the first is kept
	At         time.Time
	ActorKind  string // admin-token, key, user, system or unknown
	ActorID    string // the ID of the key or of the user; "" for other kinds
	ActorName  string // for people; "" means that the actor has no name
	Action     string // what was done, such as workflow.activate
	AccountID  string // "" means no account
	WorkflowID string // "" means no workflow
	NodeID     string // "" means no trigger node
	Changes    string // a JSON text, or ""
}

// AuditFilter selects entries of the audit. Zero fields do not filter.
type AuditFilter struct {
	Actor      string // its ID, its name or its kind
	AccountID  string
	WorkflowID string
	Since      time.Time // At not before
	Until      time.Time // At before
}

// AuditPosition is the position in the list after the entry with that time and ID. Its zero value
// is the beginning.
type AuditPosition struct {
	At time.Time
	ID string
}

// DismissedEntries returns the audit entries for the dead letters that Dismiss has removed.
func DismissedEntries(
	ids []string, messages []MessageKey, audit func(id string, message MessageKey) AuditEntry,
) []AuditEntry {
	entries := make([]AuditEntry, 0, len(ids)+len(messages))
	for _, id := range ids {
		entries = append(entries, audit(id, MessageKey{}))
	}
	for _, key := range messages {
		entries = append(entries, audit("", key))
	}
	return entries
}
