package ingress_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/ingress"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/runner"
	"github.com/hookstart/hookstart/shared/stream"
)

// startRunner starts a runner of the default queue, and stops it at the end of the test. The input,
// or the payload field of a form, determines what the handler does: {"output": …} returns an
// output, {"fail": "…"} returns an error, {"hang": true} waits until the execution is canceled or
// the test ends, and {"cancel": true} cancels the execution and then waits in the same way.
func (f *fixture) startRunner() {
	f.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	nc := f.nats.Connect(f.t)
	err := stream.EnsureCancellationsBucket(f.t.Context(), f.JetStream, stream.DefaultSettings)
	if err != nil {
		f.t.Fatal(err)
	}
	cancellations, err := f.JetStream.KeyValue(f.t.Context(), stream.CancellationsBucket)
	if err != nil {
		f.t.Fatal(err)
	}
	go func() {
		ended <- runner.Run(ctx, nc, runner.Options{
			Group:        "main",
			Concurrency:  500,
			DrainTimeout: time.Second,
			Log:          slog.New(slog.DiscardHandler),
		}, func(ctx context.Context, e runner.Execution) (any, error) {
			return do(ctx, cancellations, e)
		})
	}()
	f.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			f.t.Errorf("the runner ended with %v", err)
		}
	})
}

func do(
	ctx context.Context, cancellations jetstream.KeyValue, e runner.Execution,
) (any, error) {
	var input struct {
		Output json.RawMessage `json:"output"`
		Fail   string          `json:"fail"`
		Hang   bool            `json:"hang"`
		Cancel bool            `json:"cancel"`
	}
	text := e.Input
	var whole struct {
		Body string `json:"body"`
	}
	if json.Unmarshal(text, &whole) == nil && whole.Body != "" { // a form
		form, err := url.ParseQuery(whole.Body)
		if err != nil {
			return nil, runner.Permanent(err)
		}
		text = []byte(form.Get("payload"))
	}
	if err := json.Unmarshal(text, &input); err != nil {
		return nil, runner.Permanent(err)
	}
	if input.Cancel {
		if err := stream.PutCancellation(ctx, cancellations, e.ID, time.Now()); err != nil {
			return nil, runner.Permanent(err)
		}
	}
	switch {
	case input.Hang, input.Cancel:
		<-ctx.Done()
		return nil, ctx.Err()
	case input.Fail != "":
		return nil, runner.Permanent(errors.New(input.Fail))
	case input.Output == nil:
		return nil, nil //nolint:nilnil // it has no output
	default:
		return input.Output, nil
	}
}

var waiting = flag.Int("waiting", 1100,
	"requests that wait at once in TestManyRequestsWait; 10000 need as many open files, twice")

// Waiting requests do not use the resources that other requests need: with only eight slots for
// requests in flight, hundreds of requests can wait while others get their responses. Each waiting
// request receives the result of its execution. If an account or the ingress has reached its
// maximum of waiting requests, further requests receive a 202 immediately.
func TestManyRequestsWait(t *testing.T) {
	t.Parallel()
	const perAccount = 1000 // part of the documented contract
	s := startSituations(t, func(c *ingress.Config) {
		c.MaxInFlight, c.MaxBufferedBytes, c.MaxWaiting = 8, 2*c.MaxBodyBytes, int64(*waiting)
		c.Log.SetLevel(logrus.ErrorLevel)
	})
	limit := &registry.RateLimit{Requests: 1_000_000, Window: time.Second}
	put := func(account, id string, answer *registry.SyncResponse) {
		t.Helper()
		s.account(account, "ultra-of-many")
		_, _, err := s.PutWorkflow(t.Context(),
			edit.WorkflowSpec{
				ID: id, AccountID: account, RateLimit: limit,
				Triggers: []edit.TriggerSpec{
					{NodeID: "node", TriggerSettings: edit.TriggerSettings{SyncResponse: answer}},
				},
			})
		if err == nil {
			_, err = s.Activate(t.Context(), id)
		}
		if err != nil {
			t.Fatal(err)
		}
		s.token[id] = s.Token(t, id, "node")
	}
	plans, err := edit.ParsePlans(edit.DefaultPlansJSON)
	if err != nil {
		t.Fatal(err)
	}
	unlimited := int64(registry.Unlimited)
	if err := s.PutPlans(t.Context(), append(plans, registry.Plan{
		ID:              "ultra-of-many",
		WebhookTriggers: true,
		MaxActive:       unlimited,
		RateLimit:       *limit,
	})); err != nil {
		t.Fatal(err)
	}
	accounts := (*waiting + perAccount - 1) / perAccount
	for a := range accounts + 1 {
		put(fmt.Sprint("account-", a), fmt.Sprint("waits-", a),
			&registry.SyncResponse{WaitSeconds: 25})
	}
	put("other", "at-once", nil)

	type result struct {
		n int
		received
	}
	results := make(chan result, *waiting)
	transport := &http.Transport{DisableKeepAlives: true}
	send := func(workflow string, n int) received {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
			"http://"+s.addr+"/webhooks/"+workflow+"?token="+s.token[workflow],
			strings.NewReader(fmt.Sprintf(`{"output":%d}`, n)))
		if err != nil {
			t.Error(err)
			return received{}
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := transport.RoundTrip(request)
		if err != nil {
			t.Error(err)
			return received{}
		}
		defer func() { _ = response.Body.Close() }()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Error(err)
		}
		return received{status: response.StatusCode, raw: string(text)}
	}
	others := func() []time.Duration {
		took := make([]time.Duration, 50)
		for n := range took {
			began := time.Now()
			if a := send("at-once", n); a.status != 200 {
				t.Fatalf("a request that does not wait: %d %s", a.status, a.raw)
			}
			took[n] = time.Since(began)
		}
		slices.Sort(took)
		return took
	}
	before, alone := heapBytes(), others()
	// Send four requests, and wait until their messages are stored before sending the next four. An
	// account may occupy only half of the eight slots.
	stored := s.messages()
	for n := range *waiting {
		go func() {
			var a received
			retry.Until(t.Context(), time.Millisecond, func() bool {
				// A 503 means that no slot is free yet. A request frees its slot when it begins to
				// wait, shortly after its message has been stored.
				a = send(fmt.Sprint("waits-", n/perAccount), n)
				return a.status != http.StatusServiceUnavailable
			})
			results <- result{n, a}
		}()
		if n%4 == 3 || n == *waiting-1 {
			retry.Until(t.Context(), time.Millisecond, func() bool {
				return s.messages() > stored+uint64(n) || len(results) > 0
			})
		}
		if len(results) > 0 {
			t.Fatalf("a request did not wait: %+v", <-results)
		}
	}
	// All of these requests are still waiting. Meanwhile, requests to a node that responds
	// immediately are served. One more request that would have to wait exceeds the maximum of its
	// account or of the whole ingress, and gets a 202 immediately.
	beside := others()
	t.Logf("%d requests wait: %d bytes of heap each, the sender's side included; 50 others take "+
		"%s in the median and %s at most, %s and %s alone", *waiting,
		(heapBytes()-before)/int64(*waiting), beside[25], beside[49], alone[25], alone[49])
	if a := send("waits-0", 0); a.status != 202 || !strings.Contains(a.raw, `"status":"queued"`) {
		t.Errorf("past the maximum of the account: %d %s", a.status, a.raw)
	}
	if a := send(fmt.Sprint("waits-", accounts), 0); a.status != 202 {
		t.Errorf("past the maximum of the ingress: %d %s", a.status, a.raw)
	}
	s.startRunner()
	for range *waiting {
		r := <-results
		if want := fmt.Sprintf(`"status":"succeeded","output":%d}`, r.n); r.status != 200 ||
			!strings.HasSuffix(r.raw, want) {
			t.Errorf("request %d: %d %s", r.n, r.status, r.raw)
		}
	}
}

// heapBytes returns the size of the live objects on the heap.
func heapBytes() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// When the sender of a waiting request disconnects, the request's slot becomes free. When the
// ingress shuts down, a waiting request receives a 202. The execution continues in both cases.
func TestAWaitEndsWithItsSenderOrItsIngress(t *testing.T) {
	t.Parallel()
	s := startSituations(t, func(c *ingress.Config) { c.MaxWaiting = 1 })
	_, _, err := s.PutWorkflow(t.Context(),
		edit.WorkflowSpec{ID: "waits", AccountID: "pro", Triggers: []edit.TriggerSpec{
			{
				NodeID: "node",
				TriggerSettings: edit.TriggerSettings{
					SyncResponse: &registry.SyncResponse{WaitSeconds: 25},
				},
			},
		}})
	if err == nil {
		_, err = s.Activate(t.Context(), "waits")
	}
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + s.addr + "/webhooks/waits?token=" + s.Token(t, "waits", "node")
	post := func(ctx context.Context) (*http.Response, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, url,
			strings.NewReader(`{}`))
		if err != nil {
			return nil, err
		}
		request.Header.Set("Content-Type", "application/json")
		return http.DefaultClient.Do(request)
	}
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	before := s.messages()
	go func() {
		response, err := post(ctx)
		if err == nil {
			_ = response.Body.Close()
		}
		gone <- err
	}()
	await := func(what string, done func() bool) {
		t.Helper()
		limited, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if retry.Until(limited, time.Millisecond, done); !done() {
			t.Fatal(what)
		}
	}
	stored := func(count uint64) {
		t.Helper()
		await("it is not stored", func() bool { return s.messages() == before+count })
	}
	stored(1)
	leave()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Fatalf("it was answered: %v", err)
	}
	await("the ingress still waits", func() bool {
		return strings.Contains(s.log.String(), "answer=gone")
	})
	// This ingress lets only one request wait at a time. The first sender has disconnected, so the
	// next request can wait, and gets its response when the ingress shuts down.
	answered := make(chan received, 1)
	go func() {
		response, err := post(t.Context())
		if err != nil {
			t.Error(err)
			answered <- received{}
			return
		}
		answered <- s.read(response)
	}()
	stored(2)
	s.stop[s.addr]()
	if a := <-answered; a.status != 202 || a.body["status"] != "queued" {
		t.Errorf("%d %s", a.status, a.raw)
	}
	if !strings.Contains(s.log.String(), "answer=stopping") {
		t.Error("it did not wait")
	}
}
