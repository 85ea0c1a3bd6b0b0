package ingress_test

import (
	"testing"
	"time"

	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/retry"
)

// The registry has a filter from a later version of the program, with an operator that this version
// does not know. The ingress responds to all requests to the node with 503 and stores nothing. No
// start is lost, because senders retry: after the test has replaced the filter with one that this
// version knows, the same delivery is accepted.
func TestAFilterOfALaterVersion(t *testing.T) {
	t.Parallel()
	s := startSituations(t)
	_, _, err := s.PutWorkflow(t.Context(), edit.WorkflowSpec{
		ID: "active", AccountID: "pro", Triggers: []edit.TriggerSpec{{
			NodeID:          "node",
			TriggerSettings: edit.TriggerSettings{Filter: []byte(`{"ptr:/a":"x"}`)},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	// store replaces the filter of the workflow "active" in the registry, without the checks that
	// this version would make.
	store := func(filter string) {
		t.Helper()
		bucket, err := s.JetStream.KeyValue(t.Context(), registry.Bucket)
		if err != nil {
			t.Fatal(err)
		}
		entry, err := bucket.Get(t.Context(), registry.WorkflowPrefix+"active")
		if err != nil {
			t.Fatal(err)
		}
		w, err := registry.DecodeWorkflow(entry.Value())
		if err != nil {
			t.Fatal(err)
		}
		w.Triggers[0].Filter = filter
		record, err := w.Encode()
		if err == nil {
			_, err = bucket.Update(t.Context(), entry.Key(), record, entry.Revision())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	post := func(body string) received {
		t.Helper()
		return s.to("active", request{body: body, header: map[string]string{
			"Content-Type": "application/json", "X-Webhook-Delivery-Id": "d1",
		}})
	}
	// until sends the delivery repeatedly until the response has the given status, and returns that
	// response.
	until := func(status int, body string) (a received) {
		t.Helper()
		// Few requests, because each counts against the rate limit.
		retry.Until(t.Context(), 20*time.Millisecond, func() bool {
			a = post(body)
			return a.status == status
		})
		return a
	}
	before := s.messages()
	store(`{"ptr:/a":{"$regex":"x"}}`)
	a := until(503, `{"a":"no"}`) // the request is filtered until the ingress has the new filter
	s.expect("a filter that cannot be evaluated", a, 503, "unavailable")
	if a.header.Get("Retry-After") == "" || a.body["retryable"] != true ||
		a.body["executionId"] != nil || a.body["filtered"] != nil {
		t.Errorf("%v %s", a.header, a.raw)
	}
	s.expect("one that would match", post(`{"a":"x"}`), 503, "unavailable")
	if n := s.messages() - before; n != 0 {
		t.Errorf("%d messages were stored", n)
	}

	store(`{"ptr:/a":"x"}`)
	if a := until(200, `{"a":"x"}`); a.body["executionId"] == nil ||
		a.body["deduplicated"] != nil {
		t.Errorf("once it can be evaluated: %s", a.raw)
	}
	if n := s.messages() - before; n != 1 {
		t.Errorf("%d messages were stored, want 1", n)
	}
}
