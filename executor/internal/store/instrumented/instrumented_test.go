package instrumented_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/instrumented"
	"github.com/hookstart/hookstart/executor/internal/store/sqlite"
)

// An operation that the database could not perform counts as a failure. A lookup of a missing
// object does not, and neither does a call whose context has been canceled.
func TestFailures(t *testing.T) {
	database, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "hookstart.db"))
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	database.SetObserver(instrumented.NewObserver(registry))
	if _, err := database.Get(t.Context(), "none"); !errors.Is(err, store.ErrNotFound) {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := database.Get(ended, "none"); err == nil {
		t.Fatal("a call whose context has ended succeeded")
	}
	if err := database.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := database.List(t.Context(), store.RecordFilter{}, store.RecordPosition{},
		1); err == nil {
		t.Fatal("a closed database answered")
	}
	var want strings.Builder
	want.WriteString("# HELP hookstart_executor_database_failures_total Operations that the " +
		"database did not do.\n# TYPE hookstart_executor_database_failures_total counter\n")
	for _, operation := range []string{
		"add_duplicates", "add_refusals", "add_senders", "add_token_uses", "all_refusals", "apply",
		"cancel", "count_by_time", "count_dead_letters", "dismiss", "end_lost", "get", "get_many",
		"list", "list_oldest", "list_unreadable", "mark_requeued", "minutes", "prune",
		"prune_audit", "prune_counts", "prune_early", "refusals", "request_cancel", "sender_seen",
		"tokens_last_used",
	} {
		count := "0"
		if operation == "list" {
			count = "1"
		}
		want.WriteString(`hookstart_executor_database_failures_total{operation="` + operation +
			`"} ` + count + "\n")
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want.String()),
		"hookstart_executor_database_failures_total"); err != nil {
		t.Error(err)
	}
}
