package soak

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hookstart/hookstart/deploy/lab/deliver"
	"github.com/hookstart/hookstart/shared/retry"
)

// set starts an installation and stops it when the test ends. The test then fails if a process had
// a problem, such as an unexpected exit.
func set(t *testing.T, s installConfig) *installation {
	t.Helper()
	i, err := install(t.Context(), t.TempDir(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		i.close()
		for _, complaint := range i.problems() {
			t.Error(complaint)
		}
		if !t.Failed() {
			return
		}
		for _, p := range i.processes() {
			text, err := os.ReadFile(p.logFile)
			if err != nil {
				t.Error(err)
				continue
			}
			if race := bytes.Index(text, []byte("WARNING: DATA RACE")); race >= 0 {
				t.Logf("%s wrote:\n%s", p.name, text[race:min(len(text), race+8000)])
			}
			t.Logf("%s wrote (the last 3,000 bytes):\n%s", p.name, text[max(0, len(text)-3000):])
		}
	})
	return i
}

// posted is one request that a test sent, with its result.
type posted struct {
	marker string
	hasID  bool
	again  bool // whether this is a retry
	began  time.Time
	took   time.Duration
	answer deliver.Answer
	err    error
}

func (p posted) String() string {
	return fmt.Sprintf("%s at %s after %s: %d %s, %v", p.marker, p.began.Format("15:04:05.000"),
		p.took, p.answer.Status, p.answer.Code, p.err)
}

// posting is a load that a test runs: senders that post requests until end is called.
type posting struct {
	senders *senders
	stop    context.CancelFunc
	running sync.WaitGroup

	mu  sync.Mutex
	all []posted
}

// post starts senders that post requests until posting.end is called. Every other request has no
// delivery ID. If after is more than 0, a request that does not get a 200 is sent once more after
// that delay.
func post(t *testing.T, i *installation, after time.Duration) *posting {
	t.Helper()
	const count, every = 16, 40 * time.Millisecond
	ctx := t.Context()
	starting, stop := context.WithCancel(ctx)
	p := &posting{senders: newSenders(newLedger(), i, "test"), stop: stop}
	for n := range count {
		p.running.Go(func() {
			tick := time.NewTicker(every)
			defer tick.Stop()
			for number := 0; ; number++ {
				select {
				case <-starting.Done():
					return
				case <-tick.C:
				}
				one := p.request(ctx, posted{
					marker: fmt.Sprintf("%d-%d", n, number),
					hasID:  number%2 == 0,
				}, n+number)
				if one.answer.Status != 200 && after > 0 {
					retry.Sleep(ctx, after)
					one.again = true
					p.request(ctx, one, n+number+1)
				}
			}
		})
	}
	t.Cleanup(func() { p.end() })
	return p
}

// request sends one request, whose marker and hasID are those of next. It returns a copy of next in
// which the response and the duration are filled in. Like a load balancer, it tries the next
// ingress if an ingress refuses the connection. turn selects the workflow and the ingress that is
// tried first.
func (p *posting) request(ctx context.Context, next posted, turn int) posted {
	next.began = time.Now()
	path := p.senders.webhookPaths[turn%len(p.senders.webhookPaths)]
	for n := range p.senders.ingressURLs {
		url := p.senders.ingressURLs[(turn+n)%len(p.senders.ingressURLs)]
		next.answer, next.err = p.senders.sendRequest(ctx, &delivery{
			marker: next.marker,
			hasID:  next.hasID,
		}, url+path)
		if next.err == nil {
			break
		}
		if _, neverMade := classifyRequestError(next.err); !neverMade {
			break
		}
	}
	next.took = time.Since(next.began)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, next)
	return next
}

// end stops posting, waits for every response, and returns all requests with their results.
func (p *posting) end() []posted {
	p.stop()
	p.running.Wait()
	return p.all
}

// accepted returns the number of responses with status 200 so far.
func (p *posting) accepted() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.all {
		if one.answer.Status == 200 {
			n++
		}
	}
	return n
}

// awaitAccepted waits until the given number of further responses with status 200 have arrived.
func (p *posting) awaitAccepted(t *testing.T, more int) {
	t.Helper()
	want := p.accepted() + more
	if err := eventually(t.Context(), recoverTimeout, func(context.Context) error {
		if have := p.accepted(); have < want {
			return fmt.Errorf("%d of %d requests were accepted", have, want)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// checkStored waits until the executors and runners have processed everything in the streams, and
// fails the test if they need longer than within. It then checks that each acknowledged execution
// is stored and recorded exactly once, and returns the markers of all stored executions.
func checkStored(
	t *testing.T, i *installation, requests []posted, within time.Duration,
) map[string]bool {
	t.Helper()
	if err := awaitConsumersCaughtUp(t.Context(), i.js, within); err != nil {
		t.Fatal(err)
	}
	all, err := readStreams(t.Context(), i.js)
	if err != nil {
		t.Fatal(err)
	}
	starts := all.starts
	records, err := readRecords(t.Context(), i.client())
	if err != nil {
		t.Fatal(err)
	}
	acknowledged := 0
	for _, one := range requests {
		if one.answer.Status != 200 {
			continue
		}
		acknowledged++
		id := one.answer.ExecutionID
		if s := starts[id]; s.messageCount != 1 || s.marker != one.marker ||
			records[id].count != 1 {
			t.Errorf("%s: %s is %d times in the stream (%s), %d times recorded", one, id,
				s.messageCount, s.marker, records[id].count)
		}
	}
	if len(records) != len(starts) {
		t.Errorf("%d records, %d starts in the stream", len(records), len(starts))
	}
	t.Logf("%d requests, %d acknowledged, %d stored and recorded", len(requests), acknowledged,
		len(starts))
	markers := map[string]bool{}
	for _, s := range starts {
		markers[s.marker] = true
	}
	return markers
}

// sqlite returns the URL of a database in a temporary folder.
func sqlite(t *testing.T) string {
	t.Helper()
	return "sqlite:" + strings.TrimSuffix(t.TempDir(), "/") + "/executions.db"
}
