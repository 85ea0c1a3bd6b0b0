package console_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// The chart of causes shows the most frequent causes separately and combines all others in one
// part, so that it counts every refused request.
func TestChartOfCauses(t *testing.T) {
	t.Parallel()
	r := start(t)
	session := r.signIn()
	if body := r.get("/", session).body; strings.Count(body, "None in the last hour.") != 2 {
		t.Error("an empty hour is not said to be empty")
	}
	now := time.Now()
	for i, code := range []string{"alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta"} {
		for n, minute := range []time.Time{
			now, now.Add(-30 * time.Minute), now.Add(-2 * time.Hour), now.Add(2 * time.Hour),
		} {
			r.check(r.store.AddRefusals(t.Context(), fmt.Sprint(code, n), now,
				[]store.RefusalCount{{
					Code:   code,
					Minute: minute.Truncate(time.Minute),
					Count:  int64(10 * (i + 1)),
					Last:   store.RefusedRequest{At: minute},
				}}))
		}
	}
	body := r.get("/", session).body
	for _, part := range []string{
		"eta <b>140</b>", "zeta <b>120</b>", "epsilon <b>100</b>", "delta <b>80</b>",
		"others <b>120</b>", "refused <b>560</b>",
		"At most 280 in one", "70 eta, 60 zeta, 50 epsilon, 40 delta, 60 others",
	} {
		if !strings.Contains(strings.ReplaceAll(body, "at most", "At most"), part) {
			t.Errorf("the page does not say %q", part)
		}
	}
}
