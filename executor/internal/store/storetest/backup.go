package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
)

// TestBackup tests that a backup of one store can be restored into another. open returns a store
// with an empty database, which TestBackup closes.
func TestBackup(t *testing.T, open func(t *testing.T) store.Store) {
	t.Helper()
	t.Run("all that is kept is there again", func(t *testing.T) {
		from, to := closeAtEnd(t, open(t)), closeAtEnd(t, open(t))
		wantIsEmpty(t, from, true)
		addRowsOfEveryKind(t, from)
		wantIsEmpty(t, from, false)
		parts := backUp(t, from)
		restore(t, to, parts)
		wantIsEmpty(t, to, false)
		wantParts(t, backUp(t, to), parts)
		for _, n := range []int{1, 2, 1200} {
			wantRecord(t, getRecord(t, to, nthID(n)), getRecord(t, from, nthID(n)))
		}
		if got := getRecord(t, to, nthID(2)); got.Status != execution.Succeeded ||
			got.Duplicates != 3 {
			t.Errorf("%+v", got)
		}
		// The restored store knows that the report has been applied, so AddDuplicates has no
		// effect. A step of record 7000 is pending, and is applied when the record arrives.
		addDuplicates(t, to, "report", epoch, map[string]int64{nthID(2): 3})
		applyBatch(t, to, store.Batch{NewRecords: []store.Record{nthRecord(7000)}})
		if got := getRecord(t, to, nthID(7000)); got.Status != execution.Running {
			t.Errorf("the pending step is not applied: %+v", got)
		}
		wantSenderActivity(t, to, fullSenderActivity())
		if got := getRecord(t, to, nthID(2)); got.Duplicates != 3 {
			t.Errorf("%d duplicates", got.Duplicates)
		}
	})
	t.Run("every field of a record", func(t *testing.T) {
		from, to := closeAtEnd(t, open(t)), closeAtEnd(t, open(t))
		full := fullRecord(t)
		applyNewRecords(t, from, full)
		restore(t, to, backUp(t, from))
		wantRecord(t, getRecord(t, to, full.ID), full)
	})
	t.Run("it is as it was at one moment, whoever writes meanwhile", func(t *testing.T) {
		s := closeAtEnd(t, open(t))
		applyNewRecords(t, s, nRecords(1_200)...)
		records, first := 0, true
		if err := s.Backup(t.Context(), func(part store.BackupPart) error {
			if first {
				first = false
				applyNewRecords(t, s, nthRecord(5_000))
			}
			records += len(part.Records)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if records != 1_200 {
			t.Errorf("%d records", records)
		}
		getRecord(t, s, nthID(5_000))
	})
	t.Run("an error of who writes ends it", func(t *testing.T) {
		s := closeAtEnd(t, open(t))
		applyNewRecords(t, s, nthRecord(1))
		full := errors.New("the disk is full")
		if err := s.Backup(t.Context(), func(store.BackupPart) error {
			return full
		}); !errors.Is(err, full) {
			t.Errorf("%v", err)
		}
		applyNewRecords(t, s, nthRecord(2))
	})
}

// TestBackupOfEveryTable backs up one store (from) and restores the backup into another (to). Every
// table except those in tablesNotInBackups must then have the same number of rows in both. rows
// returns these numbers for the databases of both stores, by table name.
func TestBackupOfEveryTable(
	t *testing.T, from, to store.Store, rows func(t *testing.T) (from, to map[string]int),
) {
	t.Helper()
	addRowsOfEveryKind(t, from)
	restore(t, to, backUp(t, from))
	of, restored := rows(t)
	for table, n := range of {
		switch {
		case slices.Contains(tablesNotInBackups, table):
		case n == 0:
			t.Errorf("the table %s has no rows: add some in addRowsOfEveryKind", table)
		case restored[table] != n:
			t.Errorf("a backup has %d of the %d rows of the table %s: see Store.backupTables",
				restored[table], n, table)
		}
	}
	for _, table := range tablesNotInBackups {
		if _, exists := of[table]; !exists {
			t.Errorf("there is no table %s", table)
		}
	}
}

// tablesNotInBackups lists the tables that backups leave out. They are the tables with content that
// store.Backups excludes, and the tables that describe the database itself.
var tablesNotInBackups = []string{
	"ended_sessions",
	"event_causes", "operator_events", "event_conditions", "event_lead",
	"registry_copy", "registry_position",
	"decided",
	"goose_db_version", "harmless", "installation",
}

// addRowsOfEveryKind adds rows to every table that a backup contains.
func addRowsOfEveryKind(t *testing.T, s store.Store) {
	t.Helper()
	applyNewRecords(t, s, nRecords(1_201)...)
	applyBatch(t, s, store.Batch{
		Progress: []execution.Progress{
			runningProgress(1, epoch), succeededProgress(2, epoch, `{"a":"b"}`), failedProgress(3, epoch, "why"),
			runningProgress(7000, epoch),
		},
		PutAside: []store.AsideMessage{
			{StreamSequence: 8, Subject: "executions.start.q.w.n", Reason: "garbage", At: epoch}, {
				StreamSequence: 8,
				Subject:        "executions.progress.q.w.n",
				Reason:         "garbage",
				At:             epoch,
			},
		},
	})
	if _, _, err := s.Dismiss(t.Context(), []string{nthID(3)}, []store.MessageKey{
		{StreamSequence: 8, Progress: true},
	}, epoch.Add(time.Hour), dismissalEntry); err != nil {
		t.Fatal(err)
	}
	addAudit(t, s, nthAuditEntry(1, "a", "w"), nthAuditEntry(2, "b", "v"))
	if err := s.AddSenderActivity(t.Context(), "senders", epoch, []store.SenderActivity{
		fullSenderActivity(), {WorkflowID: "wf", NodeID: "other", HandshakeAt: epoch},
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.AddFilteredRequests(t.Context(), "filtered", epoch, []store.FilteredSummary{
		{
			WorkflowID: "wf",
			NodeID:     "node",
			Count:      3,
			Last:       []store.FilteredRequest{{At: epoch, DeliveryID: "d", Place: "ptr:/a"}},
		},
	}); err != nil {
		t.Fatal(err)
	}
	addDuplicates(t, s, "report", epoch, map[string]int64{nthID(2): 3, nthID(9000): 1})
	addRefusals(t, s, "refusals", nthMinuteRefusals("a", "token_invalid", 0, 30, 3),
		nthMinuteRefusals("", "not_found", 1, 1, 9))
}

// fullSenderActivity returns a SenderActivity in which every field is set.
func fullSenderActivity() store.SenderActivity {
	return store.SenderActivity{
		WorkflowID:    "wf",
		NodeID:        "node",
		VerifiedAt:    epoch,
		HandshakeAt:   epoch.Add(time.Second),
		RefusedAt:     epoch.Add(time.Minute),
		RefusedCode:   "signature_invalid",
		RefusedReason: "no signature is right",
		Deliveries:    5,
		WithoutID:     2,
		Refused:       3,
	}
}

func wantSenderActivity(t *testing.T, s store.Store, want store.SenderActivity) {
	t.Helper()
	if got, err := s.SenderActivity(t.Context(), want.WorkflowID, want.NodeID); err != nil ||
		got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

// fullRecord returns a record in which every field is set, except for Duplicates, which is stored
// separately.
func fullRecord(t *testing.T) store.Record {
	t.Helper()
	var r store.Record
	fillFields(t, reflect.ValueOf(&r).Elem())
	r.Duplicates = 0
	return r
}

// fillFields sets every field of a struct to a value other than zero.
func fillFields(t *testing.T, fields reflect.Value) {
	t.Helper()
	for i := range fields.NumField() {
		field, name := fields.Field(i), fields.Type().Field(i).Name
		switch field.Interface().(type) {
		case string:
			field.SetString("the " + strings.ToLower(name))
			if name == "ID" || strings.HasSuffix(name, "Of") || name == "RequeuedAs" {
				field.SetString(nthID(100 + i))
			}
		case execution.Source:
			field.Set(reflect.ValueOf(execution.SourceRerun))
		case execution.Status:
			field.Set(reflect.ValueOf(execution.Failed))
		case time.Time:
			field.Set(reflect.ValueOf(epoch.Add(time.Duration(i) * time.Second)))
		case int64, int:
			field.SetInt(int64(i))
		case uint64:
			field.SetUint(uint64(i))
		case bool:
			field.SetBool(true)
		case []byte:
			field.SetBytes([]byte(`{"number":1}`))
		case []string:
			field.Set(reflect.ValueOf([]string{"the " + strings.ToLower(name)}))
		default:
			t.Fatalf("the field %s has the type %s: say here what it may hold", name, field.Type())
		}
	}
}

func backUp(t *testing.T, s store.Store) (lines []string) {
	t.Helper()
	if err := s.Backup(t.Context(), func(part store.BackupPart) error {
		line, err := json.Marshal(part)
		lines = append(lines, string(line))
		return err
	}); err != nil {
		t.Fatalf("Backup: %v", err)
	}
	return lines
}

func restore(t *testing.T, s store.Store, lines []string) {
	t.Helper()
	for _, line := range lines {
		var part store.BackupPart
		if err := json.Unmarshal([]byte(line), &part); err != nil {
			t.Fatal(err)
		}
		if err := s.Restore(t.Context(), part); err != nil {
			t.Fatalf("Restore: %v", err)
		}
	}
}

func wantParts(t *testing.T, got, want []string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d parts, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("part %d\n got %s\nwant %s", i, got[i], want[i])
		}
	}
}

func wantIsEmpty(t *testing.T, s store.Store, want bool) {
	t.Helper()
	if empty, err := s.IsEmpty(t.Context()); err != nil || empty != want {
		t.Fatal(fmt.Sprintf("empty: %v, want %v:", empty, want), err)
	}
}
