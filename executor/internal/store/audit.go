package store

import "time"

// AuditEntry describes one action, who performed it, and when. It holds no secret.
type AuditEntry struct {
	ID         string // unique; if several entries share an ID, the first one is kept
	At         time.Time
	ActorKind  string // admin-token, key, user, system or unknown
	ActorID    string // the ID of the key or of the user; "" for other kinds
	ActorName  string // set for people; "" means that the actor has no name
	Action     string // what was done, such as workflow.activate
	AccountID  string // "" means no account
	WorkflowID string // "" means no workflow
	NodeID     string // "" means no trigger node
	Changes    string // JSON text; "" for none
}

// AuditFilter selects audit entries. Zero fields do not filter.
type AuditFilter struct {
	Actor      string // the actor's ID, name or kind
	AccountID  string
	WorkflowID string
	Since      time.Time // At is not before it
	Until      time.Time // At is before it
}

// AuditPosition is a position in the list of audit entries: just after the entry with this time and
// ID. The zero value is the beginning of the list.
type AuditPosition struct {
	At time.Time
	ID string
}

// DismissedEntries returns the audit entries for the dead letters that Dismiss removed.
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
