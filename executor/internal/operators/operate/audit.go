package operate

import (
	"context"
	"encoding/json"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/audit"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/registry/edit"
)

const auditCursorKind = "audit"

// auditCatchUpTimeout is the maximum time that AuditEntries waits for the entries of recent
// changes.
const auditCatchUpTimeout = 2 * time.Second

// AuditFilter selects entries of the audit log. A field with its zero value does not filter.
type AuditFilter = store.AuditFilter

// AuditEntries lists the audit log, newest first. The first page waits up to auditCatchUpTimeout
// for the entries of all changes confirmed before the call.
func (s *Service) AuditEntries(
	ctx context.Context, caller Caller, filter AuditFilter, page PageOptions,
) (api.List[api.AuditEntry], error) {
	return runRead(ctx, s, caller, newAccessRule("AuditEntries", accessToAllAccounts),
		func(ctx context.Context) (none api.List[api.AuditEntry], err error) {
			at, id, err := page.cursorTimePosition(auditCursorKind, 1)
			if err != nil {
				return none, err
			}
			var after store.AuditPosition
			if !at.IsZero() {
				after = store.AuditPosition{At: at, ID: id[0]}
			} else if s.config.AwaitAuditLog != nil {
				waiting, cancel := context.WithTimeout(ctx, auditCatchUpTimeout)
				s.config.AwaitAuditLog(waiting)
				cancel()
			}
			found, err := s.config.Store.ListAudit(ctx, filter, after, page.Limit+1)
			if err != nil {
				return none, err
			}
			return newListPage(
				auditCursorKind,
				found,
				page,
				apiAuditEntry,
				func(e store.AuditEntry) string {
					return encodeTimePosition(e.At, e.ID)
				},
			), nil
		})
}

func apiAuditEntry(e store.AuditEntry) api.AuditEntry {
	result := api.AuditEntry{
		ID:         e.ID,
		At:         e.At,
		Actor:      api.Actor{Kind: e.ActorKind, ID: e.ActorID, Name: e.ActorName},
		Action:     e.Action,
		AccountID:  e.AccountID,
		WorkflowID: e.WorkflowID,
		NodeID:     e.NodeID,
		Changes:    []api.AuditChange{},
	}
	if e.Changes != "" {
		_ = json.Unmarshal([]byte(e.Changes), &result.Changes) // written by audit.ToStoreEntry
	}
	return result
}

// AuditSignIn adds a successful or refused console sign-in to the audit log. A sign-in does not
// change the registry, so AuditSignIn writes the entry directly to the database. The entry is lost
// if the database is unavailable.
func (s *Service) AuditSignIn(ctx context.Context, caller Caller, refused bool) {
	action := audit.ActionSignIn
	if refused {
		action = audit.ActionSignInRefused
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	actor := edit.Actor{Kind: string(caller.Kind), ID: caller.ID, Name: caller.Name}
	entry := edit.NewAuditEntry(actor, action)
	_ = s.config.Store.AddAudit(ctx, []store.AuditEntry{{
		ID:        entry.ID,
		At:        time.Now(),
		ActorKind: entry.Actor.Kind,
		ActorID:   entry.Actor.ID,
		ActorName: entry.Actor.Name,
		Action:    action,
		AccountID: caller.AccountID,
	}})
}
