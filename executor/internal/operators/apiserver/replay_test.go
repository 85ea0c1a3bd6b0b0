package apiserver_test

import (
	"crypto/rand"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

func withKey(key string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Idempotency-Key", key) }
}

// replays returns the start messages in the stream that replay the execution with the given ID.
func (r *rig) replays(id string) []*execution.Start {
	r.t.Helper()
	return r.startsThat(func(s *execution.Start) bool { return s.ReplayOf == id })
}

// startsThat returns the start messages in the stream for which matches returns true.
func (r *rig) startsThat(matches func(*execution.Start) bool) (found []*execution.Start) {
	r.t.Helper()
	info, err := r.streamHandle().Info(r.t.Context())
	r.check(err)
	for n := uint64(1); n <= info.State.LastSeq; n++ {
		msg, err := r.streamHandle().GetMsg(r.t.Context(), n)
		if err != nil {
			continue
		}
		if event, err := stream.Decode(msg.Subject, msg.Header, msg.Data); err == nil &&
			event.Start != nil && matches(event.Start) {
			found = append(found, event.Start)
		}
	}
	return found
}

// A replay has exactly the body, headers and query of the original.
func TestReplay(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "none") // neither the plan nor the workflow's state matters
	r.put("/workflows/wf",
		`{"accountId":"acme","name":"n","queue":"mine","triggers":[{"nodeId":"node","samplePayload":1}]}`).is(201)
	random := make([]byte, 100<<10)
	_, _ = rand.Read(random)
	for n, body := range []struct{ contentType, text string }{
		{"application/json; charset=utf-8", " {\"b\": 1.0,\n\"a\":1e400, \"a\":2}\n"},
		{"application/x-www-form-urlencoded", "a=1&a=%zz"},
		{"text/plain", ""},
		{"", "ü\x00"},
		{"application/octet-stream", string(random)},
	} {
		payload, err := execution.NewPayload(body.contentType, []byte(body.text))
		r.check(err)
		original := r.failed(n, func(s *execution.Start) { s.Payload = payload })
		as := decode[api.Started](r.post("/executions/"+id(n)+"/replay", "").is(200)).ExecutionID
		found := r.replays(id(n))
		if len(found) != 1 || found[0].ID != as || as == id(n) {
			t.Fatalf("%s: started %+v", as, found)
		}
		got := found[0]
		if string(got.Payload.Body) != body.text || got.Payload.ContentType != body.contentType ||
			got.Payload.Kind != payload.Kind ||
			!maps.EqualFunc(got.Headers, original.Headers, slices.Equal) ||
			!maps.EqualFunc(got.Query, original.Query, slices.Equal) {
			t.Errorf("%q: started %.200q, %+v, %+v", body.contentType, got.Payload.Body,
				got.Headers, got.Query)
		}
		if got.AccountID != "acme" || got.Queue != "mine" || got.Source != execution.SourceRerun ||
			got.RerunOf != "" || got.DeliveryID != "" || got.TokenID != "" {
			t.Errorf("started %+v", got)
		}
	}
	// The record of the replay refers to the original. The original stays unchanged.
	r.records(store.Batch{
		NewRecords: []store.Record{record(id(50), func(rec *store.Record) {
			rec.ReplayOf, rec.Source = id(0), execution.SourceRerun
		})},
	})
	if detail := decode[api.ExecutionDetail](r.get("/executions/" +
		id(50)).is(200)); detail.ReplayOf != id(0) || detail.RerunOf != "" ||
		detail.Source != "rerun" {
		t.Errorf("%+v", detail)
	}
	if detail := decode[api.ExecutionDetail](r.get("/executions/" +
		id(0)).is(200)); detail.Status != "failed" || detail.RequeuedAs != "" {
		t.Errorf("%+v", detail)
	}
}

// A requeue or replay keeps the order key of the original request, even if the node's order key
// setting has changed since. A rerun uses the sample payload, and gets the order key of that
// payload. In a queue without lanes, order keys have no effect, so executions get none.
func TestTheOrderKeyIsKept(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "pro")
	put := func(queue, orderKey string) {
		t.Helper()
		r.put("/workflows/wf", fmt.Sprintf(`{"accountId":"acme","name":"n","queue":%q,`+
			`"triggers":[{"nodeId":"node","samplePayload":{"order":"sample"},"orderKey":%q}]}`,
			queue, orderKey))
	}
	ordered := func(n int, key string) {
		t.Helper()
		r.failed(n, func(s *execution.Start) {
			s.OrderKey = key
			s.Payload = execution.Payload{
				ContentType: "application/json", Kind: execution.BodyJSON, Body: []byte(`{"order":"body"}`),
			}
		})
	}
	// again posts to an API path that runs an execution again, such as that of a rerun or a replay.
	// It returns the subject and the order key of the new start message, separated by a space.
	again := func(path string) string {
		t.Helper()
		r.post(path, "").is(200)
		info, err := r.streamHandle().Info(t.Context())
		r.check(err)
		msg, err := r.streamHandle().GetMsg(t.Context(), info.State.LastSeq)
		r.check(err)
		event, err := stream.Decode(msg.Subject, msg.Header, msg.Data)
		r.check(err)
		return msg.Subject + " " + event.Start.OrderKey
	}
	expect := func(what, got, queue, key string) {
		t.Helper()
		want := stream.StartSubject(queue, "wf", "node") + " "
		if key != "" {
			want = fmt.Sprintf("executions.ordered.%s.%d.wf.node %s", queue,
				execution.LaneOf("wf", key), key)
		}
		if got != want {
			t.Errorf("%s: started at %s, want %s", what, got, want)
		}
	}

	put("default", "ptr:/order")
	ordered(1, "original")
	expect("replay", again("/executions/"+id(1)+"/replay"), "default", "original")
	expect("requeue", again("/executions/"+id(1)+"/requeue"), "default", "original")
	ordered(2, "original")
	r.post("/dead-letters/requeue", `{"ids":["`+id(2)+`"]}`).is(200)
	if got := r.starts(id(2)); len(got) != 1 || got[0].OrderKey != "original" {
		t.Errorf("requeued in bulk: %+v", got)
	}
	expect("rerun of the node", again("/workflows/wf/triggers/node/rerun"), "default", "sample")
	expect("rerun of an execution", again("/executions/"+id(1)+"/rerun"), "default", "sample")

	// The node's current order key setting applies only if the original request was accepted
	// without an order key.
	put("default", "header:X-None")
	expect("replay at a changed node", again("/executions/"+id(1)+"/replay"), "default", "original")
	ordered(3, "")
	expect("replay without a key", again("/executions/"+id(3)+"/replay"), "default", "")
	put("default", "ptr:/order")
	expect("replay of one from before", again("/executions/"+id(3)+"/replay"), "default", "body")
	put("default", "")
	expect("replay at a node without", again("/executions/"+id(1)+"/replay"), "default", "original")
	put("plain", "")
	expect("replay in a queue without lanes", again("/executions/"+id(1)+"/replay"), "plain", "")
	put("another", "ptr:/order")
	expect("replay in another queue", again("/executions/"+id(1)+"/replay"), "another", "original")
}

// Each replay starts a new execution, unless it repeats the idempotency key of an earlier replay of
// the same execution.
func TestReplayOnce(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "free")
	r.workflow("wf", "acme", "node")
	r.failed(1, nil)
	r.failed(2, nil)
	sixteen := func(number int, change ...func(*http.Request)) map[string]int {
		var all sync.WaitGroup
		var mu sync.Mutex
		answers := map[string]int{}
		for range 16 {
			all.Go(func() {
				as := decode[api.Started](r.call(http.MethodPost,
					"/executions/"+id(number)+"/replay", "", change...).is(200)).ExecutionID
				mu.Lock()
				defer mu.Unlock()
				answers[as]++
			})
		}
		all.Wait()
		return answers
	}
	if got := sixteen(1); len(got) != 16 || len(r.replays(id(1))) != 16 {
		t.Errorf("without a key: %v, %d starts", got, len(r.replays(id(1))))
	}
	if got := sixteen(2, withKey("k")); len(got) != 1 || len(r.replays(id(2))) != 1 {
		t.Errorf("with a key: %v, %d starts", got, len(r.replays(id(2))))
	}
	sixteen(2, withKey("another"))
	sixteen(1, withKey("k"))
	if n, m := len(r.replays(id(2))), len(r.replays(id(1))); n != 2 || m != 17 {
		t.Errorf("another key, and the same one of another execution: %d and %d starts", n, m)
	}
	// The start message of an earlier replay has left the deduplication window. The record of that
	// replay still shows that the idempotency key was used.
	r.failed(3, nil)
	as := execution.IDForReplay(id(3), "k")
	r.records(store.Batch{NewRecords: []store.Record{record(as)}})
	if got := sixteen(3, withKey("k")); got[as] != 16 || len(r.replays(id(3))) != 0 {
		t.Errorf("recorded before: %v", got)
	}
	r.wantInvalid(r.call(http.MethodPost, "/executions/"+id(1)+"/replay", "",
		withKey(strings.Repeat("k", 256))), "Idempotency-Key", "")
}

func TestReplayIsRefused(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "free")
	r.workflow("wf", "acme", "node")
	for n, status := range []execution.Status{execution.Queued, execution.Running} {
		batch := store.Batch{NewRecords: []store.Record{record(id(n))}}
		if status == execution.Running {
			step := failure(n, "")
			step.Status = status
			batch.Progress = []execution.Progress{step}
		}
		r.records(batch)
		r.post("/executions/"+id(n)+"/replay", "").refused(409, api.CodeNotFinished)
	}
	r.post("/executions/"+id(99)+"/replay", "").refused(404, api.CodeNotFound)
	r.failed(10, nil)
	_, sequence := r.lastStart()
	r.check(r.streamHandle().DeleteMsg(t.Context(), sequence))
	r.post("/executions/"+id(10)+"/replay", "").refused(409, api.CodeInputExpired)
	r.rejected(11, nil)
	r.post("/executions/"+id(11)+"/replay", "").refused(409, api.CodeBodyNotKept)
	r.failed(12, nil)
	r.delete("/workflows/wf").is(204)
	r.post("/executions/"+id(12)+"/replay", "").refused(404, api.CodeNotFound)
}

// rejected publishes the rejection of execution id(n) to the stream and records it. change can
// modify the rejection first; nil changes nothing.
func (r *rig) rejected(n int, change func(*execution.Rejection)) execution.Rejection {
	r.t.Helper()
	rejection := execution.Rejection{
		ID:         id(n),
		WorkflowID: "wf",
		NodeID:     "node",
		AccountID:  "acme",
		Queue:      "default",
		At:         epoch,
		Code:       "workflow_inactive",
		Headers:    execution.Values{"X-A": {"1", "2"}},
		Query:      execution.Values{"q": {""}},
	}
	if change != nil {
		change(&rejection)
	}
	sequence := r.message(stream.RejectedMessage(rejection))
	r.records(store.Batch{NewRecords: []store.Record{record(id(n), func(rec *store.Record) {
		rec.StreamSequence, rec.Status, rec.Error = sequence, execution.Rejected,
			"workflow_inactive"
	})}})
	return rejection
}

// A rejected request can be replayed as soon as its workflow is active. A bulk replay of a time
// range starts all rejected executions in it, each of them once.
func TestReplayRejected(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "free")
	r.workflow("wf", "acme", "node")
	r.rejected(0, func(rejection *execution.Rejection) {
		rejection.Payload = execution.Payload{
			ContentType: "x/y",
			Kind:        execution.BodyBinary,
			Body:        []byte("a\xff"),
		}
		rejection.Sender, rejection.Verified = "github", true
	})
	as := decode[api.Started](r.post("/executions/"+id(0)+"/replay", "").is(200)).ExecutionID
	found := r.replays(id(0))
	if len(found) != 1 || found[0].ID != as || string(found[0].Payload.Body) != "a\xff" ||
		found[0].Payload.ContentType != "x/y" ||
		!slices.Equal(found[0].Headers["X-A"], []string{"1", "2"}) || found[0].Sender != "github" ||
		!found[0].Verified {
		t.Fatalf("started %+v", found)
	}

	for n := 1; n <= 5; n++ {
		r.rejected(n, func(rejection *execution.Rejection) {
			if n != 3 {
				rejection.Payload = execution.Payload{
					Kind: execution.BodyText,
					Body: []byte{byte('0' + n)},
				}
			}
		})
	}
	replay := func(body string, change ...func(*http.Request)) api.Replayed {
		t.Helper()
		return decode[api.Replayed](r.call(http.MethodPost, "/executions/replay", body,
			change...).is(200))
	}
	if got := replay(`{"status":"rejected","workflowId":"other"}`); got.Replayed != 0 {
		t.Errorf("another workflow's: %+v", got)
	}
	if got := replay(`{"status":"rejected","until":"2026-01-01T00:00:00Z"}`); got.Replayed != 0 {
		t.Errorf("before: %+v", got)
	}
	for range 2 {
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				got := replay(
					`{"status":"rejected","workflowId":"wf","since":"2026-03-01T00:00:00Z"}`,
				)
				if len(got.Left) != 1 || got.Left[0].Code != api.CodeBodyNotKept ||
					got.Left[0].Count != 1 {
					t.Errorf("left: %+v", got)
				}
			})
		}
		all.Wait()
		for n, want := range []int{2, 1, 1, 0, 1, 1} {
			if got := len(r.replays(id(n))); got != want {
				t.Errorf("%d was started %d times, want %d", n, got, want)
			}
		}
	}
	if got := replay(`{"status":"rejected"}`, withKey("once more")); got.Replayed != 5 {
		t.Errorf("with another key: %+v", got)
	}
	r.wantInvalid(r.post("/executions/replay", `{"status":"failed"}`), "status", "")
	r.wantInvalid(r.post("/executions/replay", `{}`), "status", "")
}

// The call that tries an order key counts how many of the node's last requests have a value for
// this key. It ignores the sample payload and reruns, and counts separately the requests that can
// no longer be read.
func TestAnOrderKeyIsTried(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "pro")
	r.put("/workflows/wf", `{"accountId":"acme","name":"n","triggers":`+
		`[{"nodeId":"node","samplePayload":{"order":"sample"}}]}`).is(201)
	const at = "/workflows/wf/triggers/node"
	for n, body := range []string{
		`{"order":1,"other":"a"}`, `{"order":""}`, `{"order":null}`, `{"order":{}}`, `{"order":"b"}`,
	} {
		r.failed(n, func(s *execution.Start) {
			s.Payload = execution.Payload{Kind: execution.BodyJSON, Body: []byte(body)}
		})
	}
	r.records(store.Batch{NewRecords: []store.Record{
		record(id(10), func(rec *store.Record) { rec.StreamSequence = 1000 }),
		record(id(11), func(rec *store.Record) { rec.Source = execution.SourceRerun }),
	}})
	expect := func(query string, want api.OrderKeyTrial) {
		t.Helper()
		want.Requests, want.Expired = 5, 1
		got := decode[api.OrderKeyTrial](r.get(at + "/order-key-trial" + query).is(200))
		if got != want {
			t.Errorf("%q: %+v, want %+v", query, got, want)
		}
	}
	expect("?orderKey=ptr:/order", api.OrderKeyTrial{OrderKey: "ptr:/order", WithValue: 2})
	expect("?orderKey=ptr:/Order", api.OrderKeyTrial{OrderKey: "ptr:/Order"})
	r.wantInvalid(r.get(at+"/order-key-trial?orderKey=x"), "orderKey", "a place is header:Name")
	r.wantInvalid(r.get(at+"/order-key-trial"), "orderKey", "")
	r.call(http.MethodPatch, at, `{"orderKey":"ptr:/other"}`).is(200)
	expect("", api.OrderKeyTrial{OrderKey: "ptr:/other", WithValue: 1})
	r.get("/workflows/wf/triggers/none/order-key-trial").refused(404, api.CodeNotFound)
}
