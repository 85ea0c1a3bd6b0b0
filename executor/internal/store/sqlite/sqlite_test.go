package sqlite_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/sqlite"
	"github.com/hookstart/hookstart/executor/internal/store/storetest"
)

func TestContract(t *testing.T) {
	t.Parallel()
	storetest.TestStore(t, func(t *testing.T) store.Store {
		t.Helper()
		s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "hookstart.db"))
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}

func TestContractShared(t *testing.T) {
	t.Parallel()
	storetest.TestSharedDatabase(t, func(t *testing.T) func(context.Context) (store.Store, error) {
		t.Helper()
		path := filepath.Join(t.TempDir(), "hookstart.db")
		return func(ctx context.Context) (store.Store, error) { return sqlite.Open(ctx, path) }
	})
}

func TestBackup(t *testing.T) {
	t.Parallel()
	storetest.TestBackup(t, func(t *testing.T) store.Store {
		t.Helper()
		s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "hookstart.db"))
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}
