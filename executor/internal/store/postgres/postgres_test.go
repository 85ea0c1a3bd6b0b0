package postgres_test

import (
	"context"
	"os"
	"testing"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/postgres"
	"github.com/hookstart/hookstart/executor/internal/store/postgres/pgtest"
	"github.com/hookstart/hookstart/executor/internal/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func TestContract(t *testing.T) {
	t.Parallel()
	storetest.TestStore(t, func(t *testing.T) store.Store {
		t.Helper()
		s, err := postgres.Open(t.Context(), pgtest.NewDatabase(t))
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
		url := pgtest.NewDatabase(t)
		return func(ctx context.Context) (store.Store, error) { return postgres.Open(ctx, url) }
	})
}

func TestBackup(t *testing.T) {
	t.Parallel()
	storetest.TestBackup(t, func(t *testing.T) store.Store {
		t.Helper()
		s, err := postgres.Open(t.Context(), pgtest.NewDatabase(t))
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}
