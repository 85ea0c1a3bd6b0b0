package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/hookstart/hookstart/deploy/lab/deliver"
	"github.com/hookstart/hookstart/shared/retry"
)

// The senders behave like code-hosting services and payment providers, but with shorter pauses:
// they wait ten seconds for a response, and then retry with the same delivery ID.
const (
	answerTimeout  = 10 * time.Second
	initialBackoff = 200 * time.Millisecond
	maxBackoff     = 5 * time.Second
	maxAttempts    = 12
)

// Percentages of the deliveries that are sent in a special way: without a delivery ID, twice at the
// same time, and again after their acknowledgement. All other deliveries have an ID and are retried
// until they are acknowledged.
const (
	percentWithoutID   = 20
	percentSentTwice   = 4
	percentRedelivered = 6
)

// senders simulates the senders that call the webhooks.
type senders struct {
	ledger       *ledger
	ingressURLs  []string // URLs of the ingresses
	webhookPaths []string // paths of the webhooks
	// webhookPathPerQueue holds the path of one webhook for each queue.
	webhookPathPerQueue []string
	client              *http.Client
	runID               string // makes the delivery IDs differ from those of another run
}

func newSenders(b *ledger, i *installation, run string) *senders {
	s := &senders{ledger: b, webhookPaths: i.webhookPaths, runID: run, client: &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: 1024, IdleConnTimeout: 30 * time.Second},
	}}
	s.webhookPathPerQueue = i.webhookPaths[:len(i.queues())]
	for _, e := range i.ingresses {
		s.ingressURLs = append(s.ingressURLs, e.url)
	}
	return s
}

// sendLoad makes count senders send a total of rate deliveries per second until the starting
// context is done. It then waits for the final responses to these deliveries, but gives up once ctx
// is done.
func (s *senders) sendLoad(ctx, starting context.Context, count int, rate float64, seed uint64) {
	var all sync.WaitGroup
	every := time.Duration(float64(count) / rate * float64(time.Second))
	for n := range count {
		all.Go(func() {
			//nolint:gosec // not a secret
			random := rand.New(rand.NewPCG(seed, uint64(n)))
			// Start at a random time within the interval, so that the senders do not all send at
			// the same moment.
			retry.Sleep(starting, time.Duration(random.Int64N(int64(every))))
			tick := time.NewTicker(every)
			defer tick.Stop()
			for number := 0; ; number++ {
				select {
				case <-starting.Done():
					return
				case <-tick.C:
				}
				s.sendNewDelivery(ctx, fmt.Sprintf("%s-%d-%d", s.runID, n, number), random)
			}
		})
	}
	all.Wait()
}

// sendNewDelivery sends one delivery. It chooses at random one of the ways in which real senders
// behave: without an ID and without retries, twice at the same time, again after the
// acknowledgement, or simply with retries until the delivery is acknowledged.
func (s *senders) sendNewDelivery(ctx context.Context, marker string, random *rand.Rand) {
	path := s.webhookPaths[random.IntN(len(s.webhookPaths))]
	open := func(hasID bool) *delivery {
		d := s.ledger.addDelivery(marker, hasID)
		d.alwaysActive = true
		return d
	}
	switch chance := random.IntN(100); {
	case chance < percentWithoutID:
		s.sendAndRecord(ctx, open(false), path, s.ingressURLs[random.IntN(len(s.ingressURLs))])
	case chance < percentWithoutID+percentSentTwice:
		d := open(true)
		s.ledger.markConcurrent(d)
		var both sync.WaitGroup
		for range 2 {
			own := rand.New(rand.NewPCG(random.Uint64(), 0)) //nolint:gosec // not a secret
			both.Go(func() { s.deliver(ctx, d, path, own) })
		}
		both.Wait()
	case chance < percentWithoutID+percentSentTwice+percentRedelivered:
		d := open(true)
		s.deliver(ctx, d, path, random)
		s.deliver(ctx, d, path, random)
	default:
		s.deliver(ctx, open(true), path, random)
	}
}

// deliver sends a delivery to random ingresses until it gets a final response, at most maxAttempts
// times.
func (s *senders) deliver(ctx context.Context, d *delivery, path string, random *rand.Rand) {
	pause := initialBackoff
	for range maxAttempts {
		ingressURL := s.ingressURLs[random.IntN(len(s.ingressURLs))]
		if _, final := s.sendAndRecord(ctx, d, path, ingressURL); final {
			return
		}
		retry.Sleep(ctx, pause/2+time.Duration(random.Int64N(int64(pause))))
		if ctx.Err() != nil {
			return
		}
		pause = min(2*pause, maxBackoff)
	}
}

// sendAndRecord sends one request and records the response. final is true if a sender would not
// retry the request after this response.
func (s *senders) sendAndRecord(
	ctx context.Context, d *delivery, path, url string,
) (a deliver.Answer, final bool) {
	s.ledger.countSent()
	a, err := s.sendRequest(ctx, d, url+path)
	switch {
	case err != nil:
		what, neverMade := classifyRequestError(err)
		s.ledger.recordNoResponse(d, what, neverMade)
		return a, false
	case a.Status == http.StatusOK:
		s.ledger.recordAccepted(d, a)
		return a, true
	default:
		final = a.Status < 500 && a.Status != http.StatusTooManyRequests
		s.ledger.recordRefusal(d, fmt.Sprintf("%d %s", a.Status, a.Code), final)
		return a, final
	}
}

func (s *senders) sendRequest(
	ctx context.Context, d *delivery, url string,
) (deliver.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	header := map[string]string{"Content-Type": "application/json"}
	if d.hasID {
		header["X-GitHub-Delivery"] = d.marker
	}
	return deliver.Post(ctx, s.client, url, header, strings.NewReader(`{"marker":"`+d.marker+`"}`))
}

// classifyRequestError describes the error of a request. neverConnected is true if no connection
// was established, so that nothing can have arrived.
func classifyRequestError(err error) (what string, neverConnected bool) {
	var operation *net.OpError
	switch {
	case errors.As(err, &operation) && operation.Op == "dial":
		return "not connected", true
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in " + answerTimeout.String(), false
	default:
		return "connection broke", false
	}
}
