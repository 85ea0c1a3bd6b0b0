package execution_test

import (
	"testing"

	"github.com/hookstart/hookstart/shared/execution"
)

// The lane of a key must never change, because runners in other languages also compute it, as
// deploy/docs/runner-protocol.md describes. The cases are the examples on that page.
func TestLanes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		workflowID, orderKey string
		want                 int
	}{
		{"orders", "4711", 7},
		{"orders", "4712", 10},
		{"orders", "Zürich", 7},
		{"orders", "true", 4},
		{"invoices", "4711", 4},
		{"a", "b\x00c", 15},
	} {
		if got := execution.LaneOf(c.workflowID, c.orderKey); got != c.want {
			t.Errorf("workflow %q, key %q: lane %d, want %d", c.workflowID, c.orderKey, got, c.want)
		}
	}
}
