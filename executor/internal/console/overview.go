package console

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/hookstart/hookstart/executor/internal/operate"
	"github.com/hookstart/hookstart/executor/internal/signin"
)

// overview is the data of the first page.
type overview struct {
	Accounts, Workflows bool   // there are any
	Loopback            string // the public URL, if only this machine can reach it
	Numbers             numbers
	Newest              panel
}

// numbers are the part of the page that is refreshed.
type numbers struct {
	Requests    requests
	Day         activity
	Ingresses   int
	Unrecorded  *int64 // messages; nil: NATS did not say
	DeadLetters string // how many; "": there are none, or the database was too slow
}

// maxDeadLetters is how many dead letters are counted.
const maxDeadLetters = 100

const newestRows = 10

func (c *Console) overview(w http.ResponseWriter, r *http.Request) {
	o, err := c.overviewOf(r.Context())
	if err != nil {
		c.failed(w, r, err)
		return
	}
	c.render(w, r, http.StatusOK, "overview", page{Title: "Overview", Section: "overview", Body: o})
}

func (c *Console) overviewOf(ctx context.Context) (o overview, err error) {
	o.Newest = panel{Path: "/executions", First: true, Limit: newestRows}
	if o.Accounts, o.Workflows, err = c.anything(ctx); err != nil {
		return o, err
	}
	if err := c.fill(ctx, &o.Newest, ""); err != nil {
		return o, err
	}
	now, err := c.Operate.Installation(ctx, signin.Caller(ctx))
	if err != nil {
		return o, err
	}
	o.Loopback = operate.Loopback(now.PublicURL)
	o.Numbers, err = c.numbers(ctx, now)
	return o, err
}

func (c *Console) numbersFragment(w http.ResponseWriter, r *http.Request) {
	var n numbers
	now, err := c.Operate.Installation(r.Context(), signin.Caller(r.Context()))
	if err == nil {
		n, err = c.numbers(r.Context(), now)
	}
	if err != nil {
		c.failed(w, r, err)
		return
	}
	c.write(w, r, http.StatusOK, "fragment", "numbers", n)
}

func (c *Console) numbers(ctx context.Context, now operate.Installation) (n numbers, err error) {
	n.Ingresses, n.Unrecorded = now.Ingresses, now.Unrecorded
	if signin.Caller(ctx).AccountID == "" { // requests are counted for all accounts together
		if n.Requests, err = c.requests(ctx, time.Now()); err != nil {
			return n, err
		}
	}
	if n.Day, err = c.activity(ctx, operate.ExecutionFilter{}, 24, time.Hour); err != nil {
		return n, err
	}
	n.DeadLetters, err = c.deadLetters(ctx)
	return n, err
}

func (c *Console) deadLetters(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	found, err := c.Operate.DeadLetters(ctx, signin.Caller(ctx), operate.DeadLetterFilter{}, operate.Page{Limit: maxDeadLetters})
	switch n := len(found.Items); {
	case errors.Is(err, context.DeadlineExceeded):
		return "", nil
	case n == 0 || err != nil:
		return "", err
	case found.NextCursor != "":
		return "More than " + plural(maxDeadLetters, "dead letter"), nil
	default:
		return plural(int64(n), "dead letter"), nil
	}
}
