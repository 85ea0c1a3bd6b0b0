package console

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/stream"
)

// overview is the data of the first page.
type overview struct {
	Accounts, Workflows bool   // there are any
	Loopback            string // the public URL, if only this machine can reach it
	Numbers             numbers
	Newest              panel
}

// numbers are the part of the page that changes by itself.
type numbers struct {
	Requests    requests
	Day         chart
	Ingresses   int
	Unrecorded  *int64 // messages; nil: NATS did not say
	DeadLetters string // how many; "": there are none, or the database was too slow
}

// maxDeadLetters is how many dead letters are counted.
const maxDeadLetters = 100

const newestRows = 10

func (c *Console) overview(w http.ResponseWriter, r *http.Request) {
	o := overview{
		Accounts:  len(c.Directory.Accounts("", 1)) > 0,
		Workflows: len(c.Directory.Workflows("", "", 1)) > 0,
		Loopback:  loopback(c.Reach.URL()),
		Newest:    panel{Path: "/executions", First: true, Limit: newestRows},
	}
	err := c.fill(r.Context(), &o.Newest, store.Position{})
	if err == nil {
		o.Numbers, err = c.numbers(r.Context())
	}
	if err != nil {
		c.failed(w, r, err)
		return
	}
	c.render(w, r, http.StatusOK, "overview", page{Title: "Overview", Section: "overview", Body: o})
}

func (c *Console) numbers(ctx context.Context) (numbers, error) {
	n := numbers{Ingresses: len(c.Roll.Ingress()), Unrecorded: c.unrecorded(ctx)}
	now := time.Now()
	var err error
	if n.Requests, err = c.requests(ctx, now); err == nil {
		n.Day, err = c.chartOf(ctx, store.Filter{}, 24, time.Hour, now)
	}
	if err == nil {
		n.DeadLetters, err = c.deadLetters(ctx)
	}
	return n, err
}

func (c *Console) deadLetters(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	found, err := store.DeadLetters(ctx, c.Store, "", store.DeadLetter{}, maxDeadLetters+1)
	switch n := len(found); {
	case errors.Is(err, context.DeadlineExceeded):
		return "", nil
	case n == 0 || err != nil:
		return "", err
	case n > maxDeadLetters:
		return "More than " + plural(maxDeadLetters, "dead letter"), nil
	default:
		return plural(int64(n), "dead letter"), nil
	}
}

func (c *Console) numbersFragment(w http.ResponseWriter, r *http.Request) {
	n, err := c.numbers(r.Context())
	if err != nil {
		c.failed(w, r, err)
		return
	}
	c.write(w, r, http.StatusOK, "fragment", "numbers", n)
}

// unrecorded is how many messages of the stream have no record yet.
func (c *Console) unrecorded(ctx context.Context) *int64 {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	consumer, err := c.JetStream.Consumer(ctx, stream.Name, c.Consumer)
	if err != nil {
		return nil
	}
	info := consumer.CachedInfo()                                 // a moment old
	waiting := int64(info.NumPending) + int64(info.NumAckPending) //nolint:gosec // messages in a stream are fewer than 2^63
	return &waiting
}
