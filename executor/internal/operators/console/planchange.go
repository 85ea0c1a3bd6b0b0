package console

import (
	"net/http"

	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/operators/signin"
)

// planChange describes how another plan would affect an account's active workflows.
type planChange struct {
	operate.PlanChange
	Account quota
	Rate    string // rate limit of the new plan
}

// planChangeFragment renders a warning if changing the plan would stop webhooks or lower their rate
// limit. Otherwise it responds with 204.
func (c *Console) planChangeFragment(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	change, err := c.Operate.PlanChange(r.Context(), signin.Caller(r.Context()),
		query.Get("account"), query.Get("plan"))
	switch {
	case isNotFound(err):
		c.renderError(w, r, http.StatusNotFound, "There is no such account or plan",
			"It may have been changed. Load the page again.")
	case err != nil:
		c.renderCallError(w, r, err)
	case change.Stop.Total == 0 && change.Slower == 0:
		w.WriteHeader(http.StatusNoContent)
	default:
		c.write(w, r, http.StatusOK, "fragment", "plan-change", planChange{
			change, quotaOf(change.From), rateText(change.To.Plan.RateLimit),
		})
	}
}
