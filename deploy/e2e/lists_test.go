package e2e

import (
	"iter"
	"testing"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
)

// executions iterates over all executions that the filter selects. The test fails if they cannot be
// read.
func executions(
	t *testing.T, c *apiclient.Client, filter apiclient.ExecutionFilter,
) iter.Seq[api.Execution] {
	t.Helper()
	return items(t, func(p apiclient.Page) (api.List[api.Execution], error) {
		return c.Executions(t.Context(), filter, p)
	})
}

// auditEntries iterates over the whole audit log. The test fails if it cannot be read.
func auditEntries(t *testing.T, c *apiclient.Client) iter.Seq[api.AuditEntry] {
	t.Helper()
	return items(t, func(p apiclient.Page) (api.List[api.AuditEntry], error) {
		return c.Audit(t.Context(), apiclient.AuditFilter{}, p)
	})
}

// items iterates over a list that fetch returns page by page. The test fails if a page cannot be
// read.
func items[T any](
	t *testing.T, fetch func(apiclient.Page) (api.List[T], error),
) iter.Seq[T] {
	t.Helper()
	return func(yield func(T) bool) {
		for item, err := range apiclient.Items(fetch) {
			if err != nil {
				t.Fatal(err)
			}
			if !yield(item) {
				return
			}
		}
	}
}
