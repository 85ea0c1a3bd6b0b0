package console

import (
	"errors"
	"net/http"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/executor/internal/operate"
	"github.com/hookstart/hookstart/executor/internal/signin"
)

// planChange is the effect of another plan on an account's active workflows.
type planChange struct {
	Account    quota
	Plan       string
	To         int64 // how many the plan lets be active
	Allows     bool  // it has webhook triggers
	Stop, Stay named
	Rate       string // the plan's rate limit
	Slower     int64  // how many go on working, but with a lower rate limit
}

// named is a number of workflows, and the names of the first few.
type named struct {
	First []choice
	Total int
}

func namedOf(some operate.Some) named {
	n := named{Total: some.Total}
	for _, w := range some.First {
		n.First = append(n.First, choiceOf(w))
	}
	return n
}

// Others is how many are not named.
func (n named) Others() int64 { return int64(n.Total - len(n.First)) }

// planChangeFragment renders the warning before a change of plan that stops webhooks or lowers their rate limit. It is empty
// if the change does neither.
func (c *Console) planChangeFragment(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	change, err := c.Operate.PlanChange(r.Context(), signin.Caller(r.Context()), query.Get("account"), query.Get("plan"))
	refused, is := errors.AsType[*operate.Error](err)
	switch {
	case is && refused.Code == api.CodeNotFound:
		c.fail(w, r, http.StatusNotFound, "There is no such account or plan", "It may have been changed. Load the page again.")
	case err != nil:
		c.failed(w, r, err)
	case change.Stop.Total == 0 && change.Slower == 0:
		w.WriteHeader(http.StatusNoContent)
	default:
		c.write(w, r, http.StatusOK, "fragment", "plan-change", planChange{
			Account: quotaOf(change.From), Plan: change.To.Plan.ID, To: change.To.Max(), Allows: change.To.Webhooks(),
			Stop: namedOf(change.Stop), Stay: namedOf(change.Stay), Rate: rateText(change.To.Plan.RateLimit), Slower: change.Slower,
		})
	}
}
