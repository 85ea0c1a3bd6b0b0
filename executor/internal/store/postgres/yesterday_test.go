package postgres

import (
	_ "embed"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/hookstart/hookstart/executor/internal/store/postgres/pgtest"
	"github.com/hookstart/hookstart/executor/internal/store/relational"
	"github.com/hookstart/hookstart/executor/internal/store/storetest"
)

//go:embed testdata/yesterday.sql
var yesterday string

// A database that was created by the first release keeps its contents when it is migrated.
func TestYesterdaysDatabase(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	provider, err := newProvider(stdlib.OpenDBFromPool(pool))
	if err == nil {
		_, err = provider.UpTo(t.Context(), relational.BaselineVersion)
	}
	if err == nil {
		_, err = pool.Exec(t.Context(), yesterday)
	}
	if err != nil {
		t.Fatal(err)
	}
	pool.Close()
	s, err := Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	storetest.TestFirstReleaseSchema(t, s)
}
