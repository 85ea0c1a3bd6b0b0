package ingress_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/ingress"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/stream"
)

// reportedOfSenders adds up the reports about the sender of a workflow until the function enough
// returns true for the sum, and returns the sum.
func (s *situations) reportedOfSenders(
	workflow string, enough func(stream.SenderActivity) bool,
) stream.SenderActivity {
	s.t.Helper()
	consumer, err := s.JetStream.OrderedConsumer(s.t.Context(), stream.ReportsName,
		jetstream.OrderedConsumerConfig{FilterSubjects: []string{stream.SendersSubject}})
	if err != nil {
		s.t.Fatal(err)
	}
	var all stream.SenderActivity
	for !enough(all) {
		msg, err := consumer.Next(jetstream.FetchMaxWait(20 * time.Second))
		if err != nil {
			s.t.Fatalf("%v; so far %+v", err, all)
		}
		_, _, seen, err := stream.DecodeSenders(msg.Data())
		if err != nil {
			s.t.Fatal(err)
		}
		for _, one := range seen {
			if one.WorkflowID != workflow || one.NodeID != "node" {
				continue
			}
			one.Deliveries += all.Deliveries
			one.WithoutID += all.WithoutID
			one.Refused += all.Refused
			if one.RefusedCode == "" {
				one.RefusedAt, one.RefusedCode, one.RefusedReason = all.RefusedAt, all.RefusedCode,
					all.RefusedReason
			}
			if one.VerifiedAt.IsZero() {
				one.VerifiedAt = all.VerifiedAt
			}
			if one.HandshakeAt.IsZero() {
				one.HandshakeAt = all.HandshakeAt
			}
			if len(one.Captured) == 0 {
				one.Captured = all.Captured
			}
			all = one
		}
	}
	return all
}

// Ingresses report to the executors when a sender was last verified, when it last performed a
// handshake, why it was refused, and how many deliveries had no ID.
func TestExecutorsLearnWhatWasSeenOfASender(t *testing.T) {
	t.Parallel()
	s := startSituations(t)
	if _, _, err := s.PutSender(t.Context(), "active", "node", edit.SenderSpec{
		Preset:  "bearer",
		Secrets: []string{"the-bearer-token"},
	}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	right := map[string]string{"Authorization": "Bearer the-bearer-token"}
	for range 3 {
		s.to("active", request{header: right, body: "x"})
	}
	s.to("active", request{
		header: map[string]string{
			"Authorization":         right["Authorization"],
			"X-Webhook-Delivery-Id": "1",
		},
		body: "x",
	})
	s.to("active", request{header: map[string]string{"Authorization": "Bearer a-guess"}})
	seen := s.reportedOfSenders("active", func(all stream.SenderActivity) bool {
		return all.Deliveries == 4 && all.Refused == 1
	})
	if seen.VerifiedAt.Before(began.Add(-time.Millisecond)) || seen.WithoutID != 3 ||
		seen.RefusedAt.Before(began) || seen.RefusedCode != "signature_invalid" ||
		seen.RefusedReason == "" {
		t.Errorf("%+v", seen)
	}
	if strings.Contains(s.log.String(), "the-bearer-token") ||
		strings.Contains(fmt.Sprintf("%+v", seen), "bearer-token") {
		t.Error("the secret is in the log or in a report")
	}
}

// Requests that are verified but start nothing, for example because the workflow is inactive, are
// also reported as verified.
func TestVerifiedRequestsThatStartNothingAreReported(t *testing.T) {
	t.Parallel()
	s := startSituations(t)
	if _, _, err := s.PutWorkflow(t.Context(), edit.WorkflowSpec{
		ID: "active", AccountID: "pro", Triggers: []edit.TriggerSpec{{
			NodeID:          "node",
			TriggerSettings: edit.TriggerSettings{Filter: []byte(`{"ptr:/a":"x"}`)},
		}},
	}); err != nil {
		t.Fatal(err)
	}
	s.workflow("strict", "pro", true, nil)
	if a := s.to("once", request{}); a.status != 200 {
		t.Fatalf("%+v", a)
	}
	requests := map[string]struct {
		status int
		body   string
	}{
		"active":   {200, `{"a":"y"}`}, // does not match the filter
		"strict":   {400, `{`},
		"once":     {429, `{}`},
		"inactive": {403, `{}`},
	}
	began := time.Now()
	for workflow, want := range requests {
		if _, _, err := s.PutSender(t.Context(), workflow, "node", edit.SenderSpec{
			Preset: "bearer", Secrets: []string{"the-bearer-token"},
		}); err != nil {
			t.Fatal(err)
		}
		if a := s.to(workflow, request{
			header: map[string]string{
				"Authorization": "Bearer the-bearer-token", "Content-Type": "application/json",
			},
			body: want.body,
		}); a.status != want.status {
			t.Errorf("%s: %+v", workflow, a)
		}
	}
	for workflow := range requests {
		seen := s.reportedOfSenders(workflow, func(all stream.SenderActivity) bool {
			return !all.VerifiedAt.IsZero()
		})
		if seen.VerifiedAt.Before(began.Add(-time.Millisecond)) || seen.Deliveries != 0 {
			t.Errorf("%s: %+v", workflow, seen)
		}
	}
}

// When a provider sends its secret, the ingress reports the secret to the executors in encrypted
// form. The request starts no execution.
func TestACapturedSecretTravelsSealed(t *testing.T) {
	t.Parallel()
	s := startSituations(t)
	if _, _, err := s.PutSender(t.Context(), "inactive", "node",
		edit.SenderSpec{Preset: "notion"}); err != nil {
		t.Fatal(err)
	}
	before := s.messages()
	a := s.to("inactive", request{
		header: map[string]string{"Content-Type": "application/json"},
		body:   `{"verification_token":"secret_of_notion"}`,
	})
	if a.status != 200 || a.raw != "" {
		t.Errorf("%+v", a)
	}
	seen := s.reportedOfSenders("inactive", func(all stream.SenderActivity) bool {
		return len(all.Captured) > 0
	})
	if seen.HandshakeAt.IsZero() || strings.Contains(string(seen.Captured), "secret_of_notion") {
		t.Errorf("%+v", seen)
	}
	if text, err := s.keys.Open(seen.Captured,
		registry.CapturedSecretSealPurpose("inactive", "node")); err != nil ||
		string(text) != "secret_of_notion" {
		t.Errorf("%s, %v", text, err)
	}
	if s.messages() != before || strings.Contains(s.log.String(), "secret_of_notion") {
		t.Error("it was recorded, or is in the log")
	}
}

// If an ingress cannot decrypt a node's secrets, it accepts no requests to the node and responds
// with a temporary error.
func TestSecretsThatCannotBeOpenedLetNothingPass(t *testing.T) {
	t.Parallel()
	s := startSituations(t)
	addr := s.startIngress(func(c *ingress.Config) { c.SecretsKeyFile = "" })
	if _, _, err := s.PutSender(t.Context(), "active", "node", edit.SenderSpec{
		Preset:  "bearer",
		Secrets: []string{"the-bearer-token"},
	}); err != nil {
		t.Fatal(err)
	}
	r := request{
		path:   "/webhooks/active",
		token:  s.token["active"],
		header: map[string]string{"Authorization": "Bearer the-bearer-token"},
	}
	if a := s.sendTo(s.addr, r); a.status != 200 {
		t.Errorf("with the keys: %+v", a)
	}
	if a := s.sendTo(addr, r); a.status != 503 || a.code() != "unavailable" {
		t.Errorf("without the keys: %+v", a)
	}
	r.path, r.token, r.header = "/webhooks/first", s.token["first"], nil
	if a := s.sendTo(addr, r); a.status != 200 {
		t.Errorf("without the keys, where none is needed: %+v", a)
	}
}

// If the account's plan is not in the catalog, requests are refused, but a handshake still
// succeeds.
func TestASenderWhosePlanIsUnknown(t *testing.T) {
	t.Parallel()
	s := startSituations(t)
	if _, _, err := s.PutSender(t.Context(), "active", "node", edit.SenderSpec{
		Preset: "cloudevents",
	}); err != nil {
		t.Fatal(err)
	}
	plans, err := edit.ParsePlans([]byte(`[{"id": "other", "webhookTriggers": true,
		"rateLimit": {"requests": 100, "windowSeconds": 1}}]`))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.PutPlans(t.Context(), plans); err != nil {
		t.Fatal(err)
	}
	// PutPlans does not wait for the ingress.
	if err := s.AwaitInForce(t.Context(), s.RegistryIndex.Plans().Revision); err != nil {
		t.Fatal(err)
	}
	s.expect("a delivery", s.to("active", request{body: "{}"}), 403, "webhooks_not_in_plan")
	if a := s.to("active", request{
		method: "OPTIONS", header: map[string]string{"WebHook-Request-Origin": "example.com"},
	}); a.status != 200 {
		t.Errorf("a handshake: %+v", a)
	}
}

// A header that holds the sender's secret is never used as the delivery ID, even if it is one of
// the configured delivery ID headers, because delivery IDs are recorded and shown.
func TestTheSecretIsNoDeliveryID(t *testing.T) {
	t.Parallel()
	s := startSituations(t)
	addr := s.startIngress(func(c *ingress.Config) {
		c.DeliveryIDHeaders = []string{"X-Secret", "X-Id", "Authorization"}
	})
	for _, spec := range []edit.SenderSpec{
		{
			Preset:   "header",
			Secrets:  []string{"the-secret-of-the-header"},
			Settings: map[string]string{"header": "x-secret"},
		},
		{Preset: "bearer", Secrets: []string{"the-secret-of-the-header"}},
	} {
		if _, _, err := s.PutSender(t.Context(), "active", "node", spec); err != nil {
			t.Fatal(err)
		}
		r := request{
			path: "/webhooks/active", token: s.token["active"], body: "x",
			header: map[string]string{
				"X-Secret":      "the-secret-of-the-header",
				"Authorization": "Bearer the-secret-of-the-header",
			},
		}
		if spec.Preset == "bearer" {
			delete(r.header, "X-Secret")
		}
		for range 2 {
			if a := s.sendTo(addr, r); a.status != 200 || a.body["deduplicated"] != nil {
				t.Errorf("%s: %+v", spec.Preset, a)
			}
		}
		from, err := s.JetStream.Stream(t.Context(), stream.ExecutionsName)
		if err != nil {
			t.Fatal(err)
		}
		last, err := from.GetLastMsgForSubject(t.Context(), "executions.start.>")
		if err != nil {
			t.Fatal(err)
		}
		if text := fmt.Sprintf("%s %v", last.Data, last.Header); strings.Contains(text,
			"the-secret-of") {
			t.Errorf("%s: the secret is in the message: %q", spec.Preset, text)
		}
	}
}

// turns is how many times the test sets, rotates and removes the sender.
const turns = 100

// After a sender has been set, rotated or removed, every ingress applies the change from the very
// next request.
func TestSendersHoldFromTheNextRequest(t *testing.T) {
	t.Parallel()
	s := startSituations(t)
	addrs := []string{s.addr, s.startIngress()}
	ctx := t.Context()
	check := func(turn int, what, secret string, status int) {
		t.Helper()
		for _, addr := range addrs {
			header := map[string]string{}
			if secret != "" {
				header["Authorization"] = "Bearer " + secret
			}
			if a := s.sendTo(addr, request{
				path:   "/webhooks/active",
				token:  s.token["active"],
				header: header,
			}); a.status != status {
				t.Fatalf("turn %d, %s: %+v, want %d", turn, what, a, status)
			}
		}
	}
	if _, _, err := s.PutWorkflow(ctx, edit.WorkflowSpec{
		ID:        "active",
		AccountID: "pro",
		RateLimit: &registry.RateLimit{Requests: 1_000_000, Window: time.Second},
		Triggers:  []edit.TriggerSpec{{NodeID: "node"}},
	}); err != nil {
		t.Fatal(err)
	}
	for turn := range turns {
		check(turn, "without a sender", "", 200)
		one, two := fmt.Sprintf("secret-one-%d", turn), fmt.Sprintf("secret-two-%d", turn)
		if _, _, err := s.PutSender(ctx, "active", "node", edit.SenderSpec{
			Preset:  "bearer",
			Secrets: []string{one},
		}); err != nil {
			t.Fatal(err)
		}
		check(turn, "not signed", "", 401)
		check(turn, "signed", one, 200)
		now := time.Duration(0)
		if _, err := s.AddSenderSecret(ctx, "active", "node", two, &now); err != nil {
			t.Fatal(err)
		}
		check(turn, "the old secret", one, 401)
		check(turn, "the new secret", two, 200)
		if err := s.RemoveSender(ctx, "active", "node"); err != nil {
			t.Fatal(err)
		}
	}
}
