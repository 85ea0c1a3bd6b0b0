package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/runner"
	"github.com/hookstart/hookstart/shared/webhook"
)

var (
	answers = flag.Int("answers", 0,
		"number of requests in TestAnswersUnderKills, with runs of 10 ms to 40 s and a kill every "+
			"2 s; 0: a short test")
	answersRate = flag.Int("answers-rate", 100, "requests per second in TestAnswersUnderKills")
)

// echoInput is both the input and the output of an execution of the program echo-runner.
type echoInput struct {
	N      int   `json:"n"`
	TakeMS int64 `json:"takeMs"` // how long the handler takes, in milliseconds
}

// beEchoRunner runs the program echo-runner: a runner whose handler returns its input after the
// delay given in the input.
func beEchoRunner() {
	if err := runEcho(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runEcho(natsURL string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	nc, err := nats.Connect(natsURL, nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	defer nc.Close()
	fmt.Fprintln(os.Stdout, "ready")
	return runner.Run(ctx, nc, runner.Options{
		Group:       "echo",
		Concurrency: 500,
		AckWait:     runnerAckWait,
		Attempts:    1000, // so many because kills interrupt an execution of 40 s again and again
	}, func(ctx context.Context, e runner.Execution) (any, error) {
		var input echoInput
		if err := json.Unmarshal(e.Input, &input); err != nil {
			return nil, runner.Permanent(err)
		}
		select {
		case <-time.After(time.Duration(input.TakeMS) * time.Millisecond):
			return input, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
}

// waitingSender sends requests to webhooks that do not respond until the execution has ended or
// waitSeconds have passed, and counts the outcomes.
type waitingSender struct {
	t     *testing.T
	b     *breakable
	waits []int         // waitSeconds of the workflows
	paths []string      // paths of the workflows' webhooks
	grace time.Duration // how much longer than waitSeconds a request may take

	inFlight [2]atomic.Int64 // number of requests in flight at each ingress
	// answered counts the responses that report the end of an execution, accepted the responses
	// with status 202, and wrong the responses with incorrect contents. broken counts the requests
	// whose connection broke, refused the requests that were not accepted, and late the requests
	// that took longer than the sum of waitSeconds and grace.
	answered, accepted, broken, refused, wrong, late atomic.Int64

	mu     sync.Mutex
	inputs map[string]echoInput // expected inputs, keyed by execution ID
}

// deliver sends the nth delivery until an ingress accepts it and responds. After each failure, it
// retries with the same delivery ID at the other ingress. takes is how long the runner's handler
// waits before it returns.
func (s *waitingSender) deliver(n int, takes time.Duration) {
	workflow := n % len(s.waits)
	input := echoInput{n, takes.Milliseconds()}
	delivery := fmt.Sprint("delivery-", n)
	id := execution.IDForDelivery(workflowOfWait(s.waits[workflow]), "node", delivery)
	s.mu.Lock()
	s.inputs[id] = input
	s.mu.Unlock()
	body, err := json.Marshal(input)
	if err != nil {
		s.t.Error(err)
		return
	}
	repeated := false // whether an earlier request may have been accepted
	for attempt := 0; s.t.Context().Err() == nil; attempt++ {
		to := (n + attempt) % len(s.b.urls)
		s.inFlight[to].Add(1)
		began := time.Now()
		a, err := s.send(*s.b.urls[to].Load()+s.paths[workflow], delivery, body)
		took := time.Since(began)
		s.inFlight[to].Add(-1)
		limit := time.Duration(s.waits[workflow]) * time.Second
		if took > limit+s.grace {
			s.late.Add(1)
			s.t.Errorf("delivery %d, attempt %d, took %v, with waitSeconds %d: %+v, %v", n, attempt,
				took, s.waits[workflow], a, err)
		}
		switch {
		case errors.Is(err, syscall.ECONNREFUSED):
			s.refused.Add(1)
		case err != nil:
			s.broken.Add(1)
			repeated = true
		case a.status == http.StatusServiceUnavailable:
			s.refused.Add(1)
		default:
			if wrong := a.check(id, input, repeated, took < limit); wrong != "" {
				s.wrong.Add(1)
				s.t.Errorf("delivery %d, attempt %d, after %v: %s: %+v", n, attempt, took, wrong, a)
			}
			if a.status == http.StatusAccepted {
				s.accepted.Add(1)
			} else {
				s.answered.Add(1)
			}
			return
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-s.t.Context().Done():
		}
	}
}

// endAnswer is a response that reports an execution's outcome, or its current state if it has not
// ended.
type endAnswer struct {
	status       int
	idInHeader   string
	ExecutionID  string     `json:"executionId"`
	Deduplicated bool       `json:"deduplicated"`
	Status       string     `json:"status"`
	Output       *echoInput `json:"output"`
	Error        string     `json:"error"`
}

// check returns a description of what is wrong with the response for the execution with the given
// ID, or "" if the response is correct. If repeated is true, an earlier request with the same
// delivery ID may have been accepted, so the response may say that it is deduplicated. If early is
// true, the response arrived before the workflow's waitSeconds had passed, so it must report that
// the execution has succeeded.
func (a *endAnswer) check(id string, input echoInput, repeated, early bool) string {
	switch {
	case a.ExecutionID != id || a.idInHeader != id:
		return "it is of another execution than " + id
	case a.Deduplicated && !repeated:
		return "nobody has sent the delivery before"
	case a.status == http.StatusOK && a.Status == "succeeded":
		if a.Output == nil || *a.Output != input {
			return fmt.Sprintf("the output is not %+v", input)
		}
		return ""
	case a.status != http.StatusAccepted || a.Status != "queued" && a.Status != "running":
		return "it is neither an end nor a state"
	case early:
		return "it came before the limit"
	default:
		return ""
	}
}

// send posts a delivery. It returns an error only if the connection fails or the response cannot be
// read.
func (s *waitingSender) send(url, delivery string, body []byte) (a endAnswer, err error) {
	// The timeout ends a request that hangs, which then counts as late.
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url,
		strings.NewReader(string(body)))
	if err != nil {
		return a, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-GitHub-Delivery", delivery)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return a, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return a, err
	}
	a.status, a.idInHeader = response.StatusCode, response.Header.Get(webhook.HeaderExecutionID)
	if err := json.Unmarshal(text, &a); err != nil {
		s.wrong.Add(1)
		s.t.Errorf("delivery %s: %v in %s", delivery, err, text)
	}
	return a, nil
}

func workflowOfWait(seconds int) string { return fmt.Sprint("waits-", seconds) }

// makeWaiting creates an active workflow for each element of waits, and returns the paths of their
// webhooks. The element is the workflow's waitSeconds: the number of seconds for which a response
// waits for the end of the execution.
func makeWaiting(b *breakable, waits []int) (paths []string) {
	b.t.Helper()
	c := b.client.Load()
	for _, seconds := range waits {
		id := workflowOfWait(seconds)
		path := makeWorkflow(b.t, c, id)
		if _, err := c.PutWorkflow(b.t.Context(), id, api.PutWorkflow{
			AccountID: "tests",
			Name:      id,
			RateLimit: &api.RateLimit{Requests: 1_000_000, WindowSeconds: 1},
			Triggers: []api.PutTrigger{
				{NodeID: "node", Answer: &api.Answer{WaitSeconds: int64(seconds)}},
			},
		}); err != nil {
			b.t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}

// takesOf returns how long the handler of execution n takes, from 10 ms to longest. The durations
// are distributed logarithmically, so that 10 to 20 ms is as frequent as 1 to 2 s. Successive
// executions have very different durations.
func takesOf(n int, longest time.Duration) time.Duration {
	const shortest = 10 * time.Millisecond
	_, share := math.Modf(float64(n) * math.Phi)
	return time.Duration(float64(shortest) * math.Pow(float64(longest)/float64(shortest), share))
}

// Responses wait for their executions while ingresses, the executor and runners are killed in turn.
// Each response is for the right execution, none takes longer than its limit, and every execution
// ends. A sender whose connection broke gets the response for the same execution from the other
// ingress.
func TestAnswersUnderKills(t *testing.T) {
	t.Parallel()
	// The short version runs in parallel with other tests, which slow it down. Its responses may
	// therefore be up to 10 s late.
	requests, rate, longest, every := 60, 20, 4*time.Second, 300*time.Millisecond
	waits, grace := []int{1, 2, 3}, 10*time.Second
	if *answers > 0 {
		requests, rate, longest, every = *answers, *answersRate, 40*time.Second, 2*time.Second
		waits, grace = []int{2, 10, 25}, time.Second
	}
	b := startBreakable(t, 4, "echo-runner")
	s := &waitingSender{
		t: t, b: b, waits: waits, paths: makeWaiting(b, waits), grace: grace,
		inputs: map[string]echoInput{},
	}
	var senders sync.WaitGroup
	sent := make(chan struct{}) // closed when every delivery was sent once
	senders.Go(func() {
		defer close(sent)
		pace := time.NewTicker(time.Second / time.Duration(rate))
		defer pace.Stop()
		for n := range requests {
			senders.Go(func() { s.deliver(n, takesOf(n, longest)) })
			select {
			case <-pace.C:
			case <-t.Context().Done():
				return
			}
		}
	})
	t.Cleanup(senders.Wait)
	kills := killInTurn(s, sent, every)
	senders.Wait()

	ended := map[string]api.Execution{}
	look := time.NewTicker(250 * time.Millisecond)
	defer look.Stop()
	for deadline := time.Now().Add(3 * time.Minute); len(ended) < requests &&
		time.Now().Before(deadline); <-look.C {
		for _, seconds := range waits {
			finalStates(t, b.client.Load(), workflowOfWait(seconds), ended)
		}
	}
	unended := 0
	for id, input := range s.inputs {
		if ended[id].Status == "" {
			unended++
			continue
		}
		e, err := b.client.Load().Execution(t.Context(), id)
		var output echoInput
		if err == nil {
			err = json.Unmarshal(e.Output, &output)
		}
		if err != nil || e.Status != "succeeded" || output != input {
			t.Errorf("execution %s is %s with %s, want %+v; %v", id, e.Status, e.Output, input, err)
		}
	}
	if unended > 0 || len(ended) != requests {
		t.Errorf("%d of %d executions have not ended, %d have", unended, requests, len(ended))
	}
	if s.answered.Load() == 0 || s.accepted.Load() == 0 || s.broken.Load() == 0 {
		t.Error("there must be answers, 202s and broken connections")
	}
	t.Logf("%d requests, %d kills: %d answers, %d 202, %d broken, %d refused, %d wrong, %d late, "+
		"%d unended", requests, kills, s.answered.Load(), s.accepted.Load(), s.broken.Load(),
		s.refused.Load(), s.wrong.Load(), s.late.Load(), unended)
}

// killInTurn kills an ingress, the executor and a runner in turn until all deliveries have been
// sent and each kind of process has been killed at least once. It returns the number of kills.
func killInTurn(s *waitingSender, sent <-chan struct{}, every time.Duration) (kills int) {
	s.t.Helper()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-time.After(every):
		case <-sent:
			if kills >= 3 {
				return kills
			}
		}
		turn := kills / 3
		switch kills % 3 {
		case 0:
			for s.inFlight[turn%len(s.inFlight)].Load() < 3 {
				<-look.C
			}
			s.b.replaceIngress(turn)
		case 1:
			s.b.replaceExecutor()
		case 2:
			s.b.replaceRunner(turn)
		}
		kills++
	}
}
