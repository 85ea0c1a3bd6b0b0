package store

import (
	"context"
	"time"
)

// AuditLog keeps audit entries. The auditor copies entries from the registry's history into it, and
// operate reads them and adds its own. Apply, RequestCancel, Dismiss and SaveRegistryCopy store
// further entries in the same transaction as the change that the entries describe. PruneAudit
// deletes old entries.
type AuditLog interface {
	// AddAudit adds audit entries in one transaction. If an entry's ID already exists, the stored
	// entry is kept.
	AddAudit(ctx context.Context, entries []AuditEntry) error

	// ListAudit returns one page of the entries, newest first: by At, then by ID, both descending.
	// after is the position of the last entry on the previous page, or zero for the first page. A
	// page has at most limit entries.
	ListAudit(ctx context.Context, filter AuditFilter, after AuditPosition,
		limit int) ([]AuditEntry, error)
}

// AuditEntry describes one action: who performed it, when, and what it changed. It contains no
// secrets.
type AuditEntry struct {
	ID         string    // unique; if several entries share an ID, the first one is kept
	At         time.Time // when the action was performed
	ActorKind  string    // admin-token, key, user, system or unknown
	ActorID    string    // the ID of the key or of the user; "" for other kinds
	ActorName  string    // set for people; "" means that the actor has no name
	Action     string    // what was done, such as workflow.activate
	AccountID  string    // "" means no account
	WorkflowID string    // "" means no workflow
	NodeID     string    // "" means no trigger node
	Changes    string    // JSON text; "" for none
}

// AuditFilter selects audit entries. Fields that are zero are ignored.
type AuditFilter struct {
	Actor      string // the actor's ID, name or kind
	AccountID  string
	WorkflowID string
	Since      time.Time // inclusive lower bound of At
	Until      time.Time // exclusive upper bound of At
}

// AuditPosition is a position in the list of audit entries, immediately after the entry with this
// time and ID. The zero value is the beginning of the list.
type AuditPosition struct {
	At time.Time // AuditEntry.At of the entry before this position
	ID string
}
