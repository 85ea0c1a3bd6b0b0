package ingress_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/ingress"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/sender"
	"github.com/hookstart/hookstart/shared/stream"
)

// situations is a fixture with one workflow for each kind of refusal that the registry can cause.
type situations struct {
	*fixture
	token   map[string]string        // keyed by workflow ID
	senders map[string]sender.Config // senders set by scripts, keyed by workflow ID
}

func startSituations(t *testing.T, options ...func(*ingress.Config)) *situations {
	t.Helper()
	s := &situations{fixture: start(t, options...), token: map[string]string{}}
	s.workflow("active", "pro", true, nil)
	s.workflow("inactive", "pro", false, nil)
	once := &registry.RateLimit{Requests: 1, Window: time.Hour}
	s.workflow("once", "pro", true, once)
	s.workflow("inactive-once", "pro", false, once)

	s.workflow("not-in-plan", "ultra", true, nil)
	s.account("ultra", "none")

	// The account "down" moves to the free plan while two of its workflows are active. One of them
	// has used up its rate limit.
	s.account("down", "pro")
	s.workflowIn("down", "first", true, nil)
	s.workflowIn("down", "past-limit", true, once)
	if a := s.to("past-limit", request{}); a.status != 200 {
		t.Fatalf("%+v", a)
	}
	s.account("down", "free")
	return s
}

func (s *situations) account(id, plan string) {
	s.t.Helper()
	if _, _, err := s.PutAccount(s.t.Context(), id, "", plan); err != nil {
		s.t.Fatal(err)
	}
}

func (s *situations) workflow(id, plan string, active bool, limit *registry.RateLimit) {
	s.t.Helper()
	s.account(plan, plan)
	s.workflowIn(plan, id, active, limit)
}

func (s *situations) workflowIn(account, id string, active bool, limit *registry.RateLimit) {
	s.t.Helper()
	ctx := s.t.Context()
	_, _, err := s.PutWorkflow(ctx, edit.WorkflowSpec{
		ID:        id,
		AccountID: account,
		RateLimit: limit,
		Triggers:  []edit.TriggerSpec{{NodeID: "node"}},
	})
	if err == nil && active {
		_, err = s.Activate(ctx, id)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.token[id] = s.Token(s.t, id, "node")
}

// to sends a request to a workflow, with the workflow's token.
func (s *situations) to(workflow string, r request) received {
	s.t.Helper()
	r.path, r.token = "/webhooks/"+workflow, s.token[workflow]
	return s.send(r)
}

// head returns the request line and the headers of a request that the function raw sends.
func (s *situations) head(path, token string, lines ...string) string {
	if token != "" {
		path += "?token=" + token
	}
	return "POST " + path + " HTTP/1.1\r\nHost: test\r\n" +
		strings.Join(append(lines, "\r\n"), "\r\n")
}

func (s *situations) expect(row string, a received, status int, code string) {
	s.t.Helper()
	if a.status != status || a.code() != code {
		s.t.Errorf("%s: got %d %s, want %d %s", row, a.status, a.code(), status, code)
		return
	}
	// Every refusal has the same response format.
	if a.header.Get("Content-Type") != "application/problem+json" || a.body["success"] != false ||
		a.body["status"] != float64(status) {
		s.t.Errorf("%s: %v %s", row, a.header, a.raw)
	}
	for _, member := range []string{"type", "title", "detail"} {
		if text, _ := a.body[member].(string); text == "" {
			s.t.Errorf("%s: no %s in %s", row, member, a.raw)
		}
	}
	retryable := map[string]bool{
		"rate_limited":    true,
		"unavailable":     true,
		"overloaded":      true,
		"storage_full":    true,
		"body_unreadable": true,
	}
	if a.body["retryable"] != (retryable[code] || status == 503) {
		s.t.Errorf("%s: retryable %v", row, a.body["retryable"])
	}
	wait, hasWait := a.body["retryAfter"].(float64)
	if hasWait != (status == 429 || status == 503) ||
		hasWait && (wait < 1 || a.header.Get("Retry-After") != strconv.Itoa(int(wait))) {
		s.t.Errorf("%s: retryAfter %v, Retry-After %q", row, a.body["retryAfter"],
			a.header.Get("Retry-After"))
	}
}

// While the ingress waits for the body of one request, that request occupies the only slot, or all
// of the memory for bodies. Other requests are then refused with 503.
func TestOverloaded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		option func(*ingress.Config)
		length string
		body   string
	}{
		"requests": {func(c *ingress.Config) {
			c.MaxInFlight = 1
		}, "Content-Length: 1", "x"},
		"bytes": {func(c *ingress.Config) {
			c.MaxBodyBytes, c.MaxBufferedBytes = 9, 9
		}, "Content-Length: 9", "123456789"},
		"bytes, not declared": {func(c *ingress.Config) {
			c.MaxBodyBytes, c.MaxBufferedBytes = 9, 9
		}, "Transfer-Encoding: chunked", "1\r\nx\r\n0\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			s := startSituations(t, c.option)
			finish := s.begin(s.head("/webhooks/active", s.token["active"], c.length,
				"Expect: 100-continue"))
			s.expect("14", s.to("active", request{body: "x"}), 503, "overloaded")
			if a := finish(c.body); a.status != 200 {
				t.Errorf("the one that held the place: %+v", a)
			}
			if a := s.to("active", request{body: "x"}); a.status != 200 {
				t.Errorf("afterwards: %+v", a)
			}
		})
	}
}

// The plan's bytesPerDay limit is shared by all workflows of an account, across all ingresses.
func TestBytesPerDay(t *testing.T) {
	t.Parallel()
	s := start(t)
	plans, err := edit.ParsePlans([]byte(`[{"id": "small", "webhookTriggers": true, "rateLimit": {"requests": 100000, "windowSeconds": 1}, "bytesPerDay": 100000},
		{"id": "any", "webhookTriggers": true, "rateLimit": {"requests": 100, "windowSeconds": 1}}]`))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.PutPlans(t.Context(), plans); err != nil {
		t.Fatal(err)
	}
	w := &situations{fixture: s, token: map[string]string{}}
	w.account("small", "small")
	w.account("any", "any")
	w.workflowIn("small", "one", true, nil)
	w.workflowIn("small", "two", true, nil)
	w.workflowIn("small", "off", false, nil)
	w.workflowIn("any", "other", true, nil)
	body := request{body: strings.Repeat("x", 40_000)}
	chunked := request{body: body.body, chunked: true}
	w.expect("10: its body is kept, so it counts", w.to("off", body), 403, "workflow_inactive")
	if a := w.to("two", chunked); a.status != 200 {
		t.Fatalf("%+v", a)
	}
	w.expect("9", w.to("two", body), 429, "rate_limited")
	w.expect("9 before 10", w.to("off", body), 429, "rate_limited")
	w.expect("9 before 11", w.to("one", request{
		body:   body.body,
		header: map[string]string{"X-Webhook-Delivery-Id": strings.Repeat("x", 256)},
	}), 429, "rate_limited")
	if a := w.to("one", request{body: body.body[:20_000]}); a.status != 200 {
		t.Errorf("what is left of the day: %+v", a)
	}
	for range 4 {
		if a := w.to("other", body); a.status != 200 {
			t.Errorf("a plan without a limit: %+v", a)
		}
	}

	// The first ingress also counts bytes that a second ingress has read. The test then sends the
	// first ingress an empty body of undeclared length, which does not use up any bytes itself.
	addr := w.startIngress()
	w.account("both", "small")
	w.workflowIn("both", "three", true, nil)
	w.workflowIn("both", "four", false, nil)
	for _, n := range []int{40_000, 40_000, 20_000} {
		if a := w.sendTo(addr, request{
			path:  "/webhooks/three",
			token: w.token["three"],
			body:  body.body[:n],
		}); a.status != 200 {
			t.Fatalf("%+v", a)
		}
	}
	for deadline := time.Now().Add(20 * time.Second); w.to("four",
		request{chunked: true}).status != 429; {
		if time.Now().After(deadline) {
			t.Fatal("the ingresses do not tell each other")
		}
	}
}

// A single account can occupy neither all slots for requests nor all memory for bodies, so other
// accounts can still send requests.
func TestOneAccountLeavesRoomForOthers(t *testing.T) {
	t.Parallel()
	for name, option := range map[string]func(*ingress.Config){
		"requests": func(c *ingress.Config) { c.MaxInFlight = 8 },
		"bytes":    func(c *ingress.Config) { c.MaxBodyBytes, c.MaxBufferedBytes = 9, 8*9 },
	} {
		t.Run(name, func(t *testing.T) {
			s := startSituations(t, option)
			var finish []func(string) received
			for range 4 {
				finish = append(finish,
					s.begin(s.head("/webhooks/active", s.token["active"], "Content-Length: 9",
						"Expect: 100-continue")))
			}
			s.expect("the account's fifth", s.to("active", request{body: "123456789"}), 503,
				"overloaded")
			if a := s.to("first", request{body: "123456789"}); a.status != 200 {
				t.Errorf("another account: %+v", a)
			}
			for _, f := range finish {
				if a := f("123456789"); a.status != 200 {
					t.Errorf("one that held a place: %+v", a)
				}
			}
		})
	}
}

// Memory is reserved as the bytes of a body arrive, not for the declared length. Two requests
// declare more bytes in total than the ingress may hold. Both are accepted, because their bodies
// arrive one after the other.
func TestAnnouncedBytesAreNotHeld(t *testing.T) {
	t.Parallel()
	s := startSituations(t, func(c *ingress.Config) { c.MaxBufferedBytes = 150_000 })
	const length = "Content-Length: 102400"
	finish := s.begin(s.head("/webhooks/active", s.token["active"], length, "Expect: 100-continue"))
	another := s.begin(s.head("/webhooks/first", s.token["first"], length, "Expect: 100-continue"))
	for _, f := range []func(string) received{finish, another} {
		if a := f(strings.Repeat("x", 102_400)); a.status != 200 {
			t.Errorf("%+v", a)
		}
	}
}

// NATS refuses a message that is too long. Here, the body alone is short enough, but the message
// also contains the headers and parameters. Retrying cannot help, so the ingress refuses the
// request permanently.
func TestATooLongMessage(t *testing.T) {
	t.Parallel()
	s := startSituations(t, func(c *ingress.Config) { c.MaxBodyBytes = 1<<20 - 64<<10 })
	var query strings.Builder
	for i := range 7900 {
		query.WriteString("&" + strconv.FormatInt(int64(i), 36))
	}
	r := request{
		path: "/webhooks/active?token=" + s.token["active"] + query.String(),
		body: strings.Repeat("x", 1<<20-64<<10),
	}
	s.expect("13", s.send(r), 413, "body_too_large")
	r.path = "/webhooks/active?token=" + s.token["active"]
	if a := s.send(r); a.status != 200 {
		t.Errorf("without the parameters: %+v", a)
	}
}

func TestStorageFull(t *testing.T) {
	t.Parallel()
	s := startSituations(t)
	config := stream.DefaultSettings.ExecutionsStreamConfig()
	config.MaxBytes = 200_000
	if _, err := s.JetStream.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	delivery := request{
		body:   strings.Repeat("x", 50_000),
		header: map[string]string{"X-Webhook-Delivery-Id": "full"},
	}
	for n := 0; ; n++ {
		delivery.header["X-Webhook-Delivery-Id"] = fmt.Sprint(n)
		a := s.to("active", delivery)
		if a.status == 200 {
			continue
		}
		s.expect("14", a, 503, "storage_full")
		break
	}
	// The refused request has not used up its delivery ID: once the stream has room, the same
	// delivery is accepted.
	config.MaxBytes = -1
	if _, err := s.JetStream.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	if a := s.to("active", delivery); a.status != 200 || a.body["deduplicated"] != nil {
		t.Errorf("again: %+v", a)
	}
	if a := s.to("active", delivery); a.body["deduplicated"] != true {
		t.Errorf("a third time: %+v", a)
	}
}

func TestRateLimitAnswersWhenTheNextOneIsAccepted(t *testing.T) {
	t.Parallel()
	s := startSituations(t)
	s.workflow("two", "pro", true, &registry.RateLimit{Requests: 2, Window: 2 * time.Hour})
	for range 2 {
		if a := s.to("two", request{}); a.status != 200 {
			t.Fatalf("%+v", a)
		}
	}
	for range 5 { // a refusal does not extend the wait
		a := s.to("two", request{})
		s.expect("9", a, 429, "rate_limited")
		if wait, _ := a.body["retryAfter"].(float64); wait > 3600 || wait < 3500 {
			t.Errorf("retryAfter %v", wait)
		}
	}
	// Requests without a valid token do not count against the rate limit.
	s.workflow("three", "pro", true, &registry.RateLimit{Requests: 3, Window: time.Hour})
	for range 10 {
		s.send(request{path: "/webhooks/three", token: "hst_x"})
	}
	for range 3 {
		if a := s.to("three", request{}); a.status != 200 {
			t.Errorf("%+v", a)
		}
	}
}

// A changed rate limit applies from the very next request. Requests that were admitted under the
// old limit do not count against the new one.
func TestAChangedRateLimitBeginsFromIdle(t *testing.T) {
	t.Parallel()
	s := startSituations(t)
	for _, requests := range []int64{1, 2, 1} {
		s.workflow("changed", "pro", true, &registry.RateLimit{
			Requests: requests,
			Window:   time.Duration(requests) * 12 * time.Hour,
		})
		for range requests {
			if a := s.to("changed", request{}); a.status != 200 {
				t.Errorf("of %d: %+v", requests, a)
			}
		}
		s.expect("one more", s.to("changed", request{}), 429, "rate_limited")
	}
	s.workflow("changed", "pro", true, nil)
	if a := s.to("changed", request{}); a.status != 200 {
		t.Errorf("back at the plan's limit: %+v", a)
	}
}

func TestRejectedExecutions(t *testing.T) {
	t.Parallel()
	s := startSituations(t)
	withID := func(id string) request {
		return request{header: map[string]string{"X-Webhook-Delivery-Id": id}, body: "never read"}
	}
	before := s.messages()
	first := s.to("inactive", withID("1"))
	again := s.to("inactive", withID("1"))
	other := s.to("inactive", withID("2"))
	if first.executionID() == "" || first.executionID() != again.executionID() ||
		first.executionID() == other.executionID() {
		t.Errorf("%s %s %s", first.executionID(), again.executionID(), other.executionID())
	}
	if n := s.messages() - before; n != 2 {
		t.Errorf("%d messages for two deliveries", n)
	}
	rejection := s.lastEvent().Rejection
	if rejection == nil || rejection.ID != other.executionID() || rejection.DeliveryID != "2" ||
		rejection.Code != "workflow_inactive" || rejection.DeclaredSize != 10 {
		t.Errorf("%+v", rejection)
	}
	if _, err := s.Activate(t.Context(), "inactive"); err != nil {
		t.Fatal(err)
	}
	accepted := s.to("inactive", withID("1"))
	if accepted.status != 200 || accepted.body["deduplicated"] != nil ||
		accepted.executionID() == first.executionID() {
		t.Errorf("once it is active: %+v", accepted)
	}
	if id := s.last().Header.Get(jetstream.MsgIDHeader); id != accepted.executionID() {
		t.Errorf("Nats-Msg-Id %q", id)
	}
	if _, err := s.Deactivate(t.Context(), "inactive"); err != nil {
		t.Fatal(err)
	}
	if a := s.to("inactive", withID("1")); a.executionID() != first.executionID() {
		t.Errorf("inactive again: %+v", a)
	}
	noID := s.to("inactive", request{})
	if noID.executionID() == s.to("inactive", request{}).executionID() {
		t.Error("two requests without a delivery ID have one rejected ID")
	}
}

func TestIngressesShareARateLimit(t *testing.T) {
	t.Parallel()
	s := startSituations(t)
	second := s.startIngress()
	s.workflow("shared", "pro", true, &registry.RateLimit{Requests: 1000, Window: 24 * time.Hour})
	accepted := 0
	post := func(addr string) int {
		a := s.sendTo(addr, request{path: "/webhooks/shared", token: s.token["shared"]})
		if a.status == 200 {
			accepted++
		}
		return a.status
	}
	for post(s.addr) == 200 {
		// Repeat until the first ingress has reached the limit.
	}
	for post(second) == 200 {
		// Repeat until the second ingress has received the counts. Without them, it would accept
		// 1000 more requests.
	}
	if accepted < 1000 || accepted > 1900 {
		t.Errorf("%d accepted by two ingresses, the limit is 1000", accepted)
	}
}
