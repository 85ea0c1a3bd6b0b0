package storetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// bucket is the name of the registry bucket in these tests.
const bucket = "registry"

var registryTests = map[string]func(*testing.T, store.Store){
	"an identity is adopted once": func(t *testing.T, s store.Store) {
		if id, err := s.Installation(t.Context()); err != nil || id != "" {
			t.Fatalf("a new database is the installation %q, %v", id, err)
		}
		var adopting sync.WaitGroup
		got := make([]string, 4)
		for i := range got {
			adopting.Go(func() {
				var err error
				if got[i], err = s.AdoptInstallation(t.Context(),
					fmt.Sprint("id-", i)); err != nil {
					t.Error(err)
				}
			})
		}
		adopting.Wait()
		id, err := s.Installation(t.Context())
		if err != nil || id == "" {
			t.Fatalf("%q, %v", id, err)
		}
		for _, record := range got {
			if record != id {
				t.Errorf("%q was adopted, and %q", record, id)
			}
		}
	},
	"the newest revision of a record is kept": func(t *testing.T, s store.Store) {
		saveRegistryCopy(t, s, 0, 3, registryRecord("a", 1, "first"), registryRecord("b", 2, "b"),
			registryRecord("a", 3, "second"))
		saveRegistryCopy(t, s, 3, 5, registryRecord("b", 5, ""))
		// Another executor stores revisions 1 and 2, although the copy has already reached revision
		// 5. This changes nothing.
		saveRegistryCopy(t, s, 0, 2, registryRecord("a", 1, "first"), registryRecord("b", 2, "b"))
		wantRegistryCopy(t, s, 5, registryRecord("a", 3, "second"), registryRecord("b", 5, ""))
		if at, err := s.RegistryPosition(t.Context(), "another"); err != nil ||
			at != (store.RegistryPosition{}) {
			t.Errorf("another bucket: %+v, %v", at, err)
		}
	},
	"a gap is refused": func(t *testing.T, s store.Store) {
		saveRegistryCopy(t, s, 0, 3, registryRecord("a", 3, "a"))
		err := s.SaveRegistryCopy(t.Context(), bucket,
			[]store.RegistryRecord{registryRecord("a", 6, "later")},
			[]store.AuditEntry{nthAuditEntry(1, "", "")}, 5, registryPosition(6))
		if !errors.Is(err, store.ErrRegistryGap) {
			t.Errorf("after 5, where 3 was reached: %v", err)
		}
		wantRegistryCopy(t, s, 3, registryRecord("a", 3, "a"))
		if ids := listAuditIDs(t, s, store.AuditFilter{}); len(ids) > 0 {
			t.Errorf("entries %q", ids)
		}
	},
	"an entry of the audit is kept with its record": func(t *testing.T, s store.Store) {
		for range 2 {
			if err := s.SaveRegistryCopy(t.Context(), bucket,
				[]store.RegistryRecord{registryRecord("a", 1, "a")},
				[]store.AuditEntry{nthAuditEntry(1, "", "")}, 0, registryPosition(1)); err != nil {
				t.Fatal(err)
			}
		}
		if ids := listAuditIDs(t, s, store.AuditFilter{}); len(ids) != 1 {
			t.Errorf("entries %q", ids)
		}
	},
	"several executors keep the same records": func(t *testing.T, s store.Store) {
		var keeping sync.WaitGroup
		for range 4 {
			keeping.Go(func() {
				for n := range uint64(20) {
					if err := s.SaveRegistryCopy(t.Context(), bucket, []store.RegistryRecord{
						registryRecord("b", 2*n+1, "x"), registryRecord("a", 2*n+2, fmt.Sprint(n)),
					}, nil, 2*n, registryPosition(2*n+2)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		keeping.Wait()
		wantRegistryCopy(t, s, 40, registryRecord("a", 40, "19"), registryRecord("b", 39, "x"))
	},
	"records are read in pages": func(t *testing.T, s store.Store) {
		saveRegistryCopy(t, s, 0, 3, registryRecord("a", 1, "a"), registryRecord("b", 2, "b"),
			registryRecord("c", 3, "c"))
		page, err := s.RegistryRecords(t.Context(), bucket, "a", 1)
		if err != nil || len(page) != 1 || page[0].Key != "b" {
			t.Errorf("%+v, %v", page, err)
		}
	},
}

// registryRecord returns a revision of a registry record. If data is "", the revision is a
// deletion.
func registryRecord(key string, revision uint64, data string) store.RegistryRecord {
	r := store.RegistryRecord{
		Bucket: bucket, Key: key, Revision: revision,
		Data: []byte(data),
	}
	if data == "" {
		r.Deleted = 1
	}
	return r
}

func registryPosition(revision uint64) store.RegistryPosition {
	//nolint:gosec // small numbers
	return store.RegistryPosition{
		Revision: revision,
		At:       epoch.Add(time.Duration(revision) * time.Second),
	}
}

func saveRegistryCopy(
	t *testing.T, s store.Store, after, upTo uint64, records ...store.RegistryRecord,
) {
	t.Helper()
	err := s.SaveRegistryCopy(t.Context(), bucket, records, nil, after, registryPosition(upTo))
	if err != nil {
		t.Fatal(err)
	}
}

func wantRegistryCopy(t *testing.T, s store.Store, upTo uint64, want ...store.RegistryRecord) {
	t.Helper()
	if at, err := s.RegistryPosition(t.Context(), bucket); err != nil ||
		at != registryPosition(upTo) {
		t.Errorf("position %+v, want %+v, %v", at, registryPosition(upTo), err)
	}
	got, err := s.RegistryRecords(t.Context(), bucket, "", 100)
	if err != nil || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("it has %+v, want %+v, %v", got, want, err)
	}
}
