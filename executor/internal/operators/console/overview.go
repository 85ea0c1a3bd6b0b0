package console

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/operators/signin"
)

// overview is the template data of the home page.
type overview struct {
	Accounts, Workflows bool   // whether there is at least one account or workflow, respectively
	LoopbackURL         string // origin of the public URL if only this machine can reach it, or ""
	Numbers             overviewNumbers
	Newest              executionList
}

// overviewNumbers is the template data of the part of the home page that is refreshed while the
// page is open.
type overviewNumbers struct {
	Requests   requestCharts
	LastDay    activityChart
	Ingresses  int
	Unrecorded *int64 // number of messages that are not recorded yet; nil if unknown
	// DeadLetters is the number of dead letters as text. "" means that there are none, or that the
	// database was too slow.
	DeadLetters string
}

// maxCountedDeadLetters is the maximum number of dead letters that the home page counts. If there
// are more, it shows "More than 100 dead letters".
const maxCountedDeadLetters = 100

const maxOverviewRows = 10

func (c *Console) overview(r *http.Request) (o overview, err error) {
	ctx := r.Context()
	o.Newest = executionList{Path: "/executions", First: true, MaxRows: maxOverviewRows}
	if o.Accounts, o.Workflows, err = c.hasAccountsAndWorkflows(ctx); err != nil {
		return o, err
	}
	if err := c.fillRows(ctx, &o.Newest, ""); err != nil {
		return o, err
	}
	now, err := c.Operate.Installation(ctx, signin.Caller(ctx))
	if err != nil {
		return o, err
	}
	o.LoopbackURL = operate.LoopbackOrigin(now.PublicURL)
	o.Numbers, err = c.overviewNumbersOf(ctx, now)
	return o, err
}

func (c *Console) overviewNumbers(r *http.Request) (overviewNumbers, error) {
	now, err := c.Operate.Installation(r.Context(), signin.Caller(r.Context()))
	if err != nil {
		return overviewNumbers{}, err
	}
	return c.overviewNumbersOf(r.Context(), now)
}

func (c *Console) overviewNumbersOf(
	ctx context.Context,
	now operate.InstallationStatus,
) (n overviewNumbers, err error) {
	n.Ingresses, n.Unrecorded = now.Ingresses, now.Unrecorded
	if signin.Caller(ctx).AccountID == "" { // requests are counted only for all accounts together
		if n.Requests, err = c.requestCharts(ctx, time.Now()); err != nil {
			return n, err
		}
	}
	if n.LastDay, err = c.activityChart(ctx, operate.ExecutionFilter{}, 24, time.Hour); err != nil {
		return n, err
	}
	n.DeadLetters, err = c.deadLetterCountText(ctx)
	return n, err
}

func (c *Console) deadLetterCountText(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, countQueryTimeout)
	defer cancel()
	found, err := c.Operate.DeadLetters(ctx, signin.Caller(ctx), operate.DeadLetterFilter{},
		operate.PageOptions{Limit: maxCountedDeadLetters})
	switch n := len(found.Items); {
	case errors.Is(err, context.DeadlineExceeded):
		return "", nil
	case n == 0 || err != nil:
		return "", err
	case found.NextCursor != "":
		return "More than " + plural(maxCountedDeadLetters, "dead letter"), nil
	default:
		return plural(int64(n), "dead letter"), nil
	}
}
