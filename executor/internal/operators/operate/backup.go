package operate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/audit"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/registry/edit"
)

// restorePartTimeout is the maximum time for restoring one part of a backup.
const restorePartTimeout = time.Minute

// BackUpRecords calls write with the parts of a consistent copy of the database. Each part is one
// line of JSON. BackUpRecords has no time limit. If write returns an error, BackUpRecords returns
// that error unchanged.
func (s *Service) BackUpRecords(
	ctx context.Context, caller Caller, write func(part []byte) error,
) error {
	var refused error
	_, err := checkAndCall(ctx, s, caller, newAccessRule("BackUpRecords", accessToAllAccounts),
		func(ctx context.Context) (none struct{}, err error) {
			err = s.config.Store.Backup(ctx, func(part store.BackupPart) error {
				refused = s.checkAllowed(ctx, caller,
					newAccessRule("BackUpRecords", accessToAllAccounts))
				if refused != nil {
					// Check for each part, because the caller's key may have been revoked since the
					// backup began.
					return refused
				}
				text, err := json.Marshal(part)
				if err != nil {
					return fmt.Errorf("encode a part of a backup: %w", err)
				}
				refused = write(text)
				return refused
			})
			return none, err
		})
	if refused != nil {
		return refused
	}
	return err
}

// BackUpAudit calls write with the audit entries about one registry bucket, in parts that are lines
// of JSON, as BackUpRecords does. since and until are both inclusive.
func (s *Service) BackUpAudit(
	ctx context.Context, caller Caller, bucket string, since, until time.Time, write func(
		part []byte,
	) error,
) error {
	_, err := checkAndCall(ctx, s, caller, newAccessRule("BackUpAudit", accessToAllAccounts),
		func(ctx context.Context) (none struct{}, err error) {
			// until is inclusive, but the filter's Until is exclusive. Stored times are whole
			// microseconds, so adding one microsecond includes until itself.
			filter := store.AuditFilter{Since: since, Until: until.Add(time.Microsecond)}
			for after := (store.AuditPosition{}); ; {
				found, err := s.config.Store.ListAudit(ctx, filter, after, auditEntriesPerPart)
				if err != nil {
					return none, err
				}
				if len(found) == 0 {
					return none, nil
				}
				last := found[len(found)-1]
				after = store.AuditPosition{At: last.At, ID: last.ID}
				found = slices.DeleteFunc(found, func(e store.AuditEntry) bool {
					return edit.AuditBucket(e.Action) != bucket
				})
				if len(found) == 0 {
					continue
				}
				text, err := json.Marshal(store.BackupPart{Audit: found})
				if err != nil {
					return none, fmt.Errorf("encode a part of a backup: %w", err)
				}
				if err := write(text); err != nil {
					return none, err
				}
			}
		})
	return err
}

// auditEntriesPerPart is the maximum number of audit entries in one part of a backup.
const auditEntriesPerPart = 500

// RestoreRecords writes one part of a backup to the database. If first is true, it rejects the part
// unless the database is empty. It rejects every part if an account exists, because the registry
// must be restored last.
func (s *Service) RestoreRecords(
	ctx context.Context, caller Caller, part []byte, first bool,
) error {
	r := newAccessRule("RestoreRecords", accessToAllAccounts)
	return s.runChangeWithoutResult(ctx, caller, r, restorePartTimeout,
		func(ctx context.Context) error {
			var read store.BackupPart
			if err := json.Unmarshal(part, &read); err != nil {
				return &Error{
					Code: api.CodeInvalid,
					Fields: []api.FieldError{
						{Field: "body", Problem: "must be a part of a backup: " + err.Error()},
					},
				}
			}
			if err := s.config.Editor.EnsureCurrentUnlessRestoring(ctx); err != nil {
				return err
			}
			if len(s.config.RegistryIndex.Accounts("", 1)) > 0 {
				return &Error{
					Code: api.CodeNotEmpty,
					Detail: "There are accounts. A backup is restored into an installation in " +
						"which nothing was done yet.",
				}
			}
			if first {
				empty, err := s.config.Store.IsEmpty(ctx)
				if err != nil {
					return err
				}
				if !empty {
					return &Error{
						Code: api.CodeNotEmpty,
						Detail: "The database has records. A backup is restored into an " +
							"installation in which nothing was done yet.",
					}
				}
				entry := edit.NewAuditEntry(edit.ActorOf(ctx), audit.ActionRestore)
				entry.At = time.Now()
				read.Audit = append(read.Audit, audit.ToStoreEntry(entry))
			}
			return s.config.Store.Restore(ctx, read)
		})
}
