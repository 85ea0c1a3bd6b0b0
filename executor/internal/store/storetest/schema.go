package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// TestNewerSchema tests a store whose database is migrated by a newer program while the store is
// open. The callback run executes a statement in the database, as the newer program would. Until
// the migration is marked as harmless, the store must reject all writes with a NewerSchemaError,
// which is not a DataError.
func TestNewerSchema(
	t *testing.T, open func(t *testing.T) store.Store, run func(t *testing.T, statement string),
) {
	t.Helper()
	s := open(t)
	batch := store.Batch{NewRecords: []store.Record{nthRecord(1)}}
	if _, err := s.Apply(t.Context(), store.Batch{}); err != nil {
		t.Fatal(err)
	}
	run(t, `INSERT INTO goose_db_version (version_id, is_applied) VALUES (90000, true)`)
	for what, call := range map[string]func(context.Context) error{
		"Apply": func(ctx context.Context) error { _, err := s.Apply(ctx, batch); return err },
		"AddAudit": func(ctx context.Context) error {
			return s.AddAudit(ctx, []store.AuditEntry{{ID: "a"}})
		},
		"Prune": func(ctx context.Context) error { _, err := s.Prune(ctx, epoch, 1); return err },
		"Ping":  s.Ping,
	} {
		err := call(t.Context())
		newer, ok := errors.AsType[*store.NewerSchemaError](err)
		if !ok || newer.DatabaseVersion != 90000 ||
			newer.SupportedVersion != s.SupportedSchemaVersion() ||
			store.IsDataError(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if version, err := s.DatabaseSchemaVersion(t.Context()); err != nil || version != 90000 {
		t.Errorf("%d, %v", version, err)
	}
	run(t, `INSERT INTO harmless VALUES (90000)`)
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := s.Apply(t.Context(), batch); err != nil {
		t.Error(err)
	}
}

// CheckEarlierSchemaRefused checks err, the error from opening a database that was created before
// the first release. It must be a single line that tells the operator what to do.
func CheckEarlierSchemaRefused(t *testing.T, err error, version int64) {
	t.Helper()
	for _, want := range []string{
		"from before the first release", "hookstart admin backup",
		fmt.Sprintf("schema has version %d", version),
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v; it lacks %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("it has several lines: %v", err)
	}
}
