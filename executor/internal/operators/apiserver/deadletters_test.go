package apiserver_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

func failure(n int, why string) execution.Progress {
	return execution.Progress{
		ID:         id(n),
		Queue:      "default",
		WorkflowID: "wf",
		Status:     execution.Failed,
		At:         epoch.Add(time.Minute),
		Error:      why,
	}
}

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	r := start(t)
	if got := string(r.get("/dead-letters").is(200).body); got != `{"items":[],"nextCursor":""}` {
		t.Errorf("none: %s", got)
	}
	var batch store.Batch
	var want []string
	for i := range 6 {
		at := epoch.Add(time.Duration(i) * time.Second)
		batch.NewRecords = append(batch.NewRecords, record(id(i), func(rec *store.Record) {
			rec.AcceptedAt, rec.StreamSequence = at, uint64(i)+1
		}))
		batch.PutAside = append(batch.PutAside, store.AsideMessage{
			StreamSequence: uint64(i) + 11,
			Subject:        "executions.start.default." + []string{"wf", "other"}[i%2] + ".node",
			Reason:         "garbage",
			At:             at,
		})
		if i != 3 {
			batch.Progress = append(batch.Progress, failure(i, "it broke"))
			want = append([]string{id(i), fmt.Sprint("message-", i+11)}, want...)
		} else {
			want = append([]string{fmt.Sprint("message-", i+11)}, want...)
		}
	}
	r.records(batch)
	ids := func(r *rig, path string) ([]string, string) {
		list := decode[api.List[api.DeadLetter]](r.get(path).is(200))
		var all []string
		for _, d := range list.Items {
			all = append(all, d.ID)
		}
		return all, list.NextCursor
	}
	for _, limit := range []int{1, 2, 3, 200} {
		r.wantPages(fmt.Sprint("/dead-letters?limit=", limit), want, limit, ids)
		ofWorkflow := slices.DeleteFunc(slices.Clone(want), func(id string) bool {
			return slices.Contains([]string{"message-12", "message-14", "message-16"}, id)
		})
		r.wantPages(fmt.Sprint("/dead-letters?workflowId=wf&limit=", limit), ofWorkflow, limit, ids)
	}
	got := string(r.get("/dead-letters?limit=2").is(200).body)
	items, _, _ := strings.Cut(got, `,"nextCursor"`)
	if want := `{"items":[{"id":"` + id(5) +
		`","kind":"failed","at":"2026-03-01T12:00:05.123456Z","failedAt":"2026-03-01T12:01:00.123456Z",` +
		`"reason":"it broke","streamSequence":6,"subject":"executions.start.default.wf.node","executionId":"` + id(5) + `","workflowId":"wf","nodeId":"node"},` +
		`{"id":"message-16","kind":"undecodable","at":"2026-03-01T12:00:05.123456Z","reason":"garbage","streamSequence":16,` +
		`"subject":"executions.start.default.other.node"}]`; items != want {
		t.Errorf("got  %s\nwant %s", items, want)
	}
	for query, n := range map[string]int{
		"reason=it+broke":               5,
		"reason=garbage":                6,
		"reason=broke&workflowId=other": 0,
		"since=2026-03-01T12:00:04Z":    4,
		"until=2026-03-01T12:00:01Z":    2,
		"accountId=acme":                5,
		"accountId=other":               0,
	} {
		if got, _ := ids(r, "/dead-letters?limit=200&"+query); len(got) != n {
			t.Errorf("%s: %q, want %d", query, got, n)
		}
	}
	r.wantInvalid(r.get("/dead-letters?limit=201"), "limit", "")
	r.wantInvalid(r.get("/dead-letters?cursor=x"), "cursor", "")
	_, cursor := ids(r, "/dead-letters?limit=1")
	r.wantInvalid(r.get("/executions?cursor="+cursor), "cursor", "")
	sequence := r.message(&nats.Msg{
		Subject: "executions.start.default.wf.node",
		Data:    []byte("\xff"),
	}, nil)
	r.records(store.Batch{
		PutAside: []store.AsideMessage{
			{
				StreamSequence: sequence,
				Subject:        "executions.start.default.wf.node",
				Reason:         "garbage",
				At:             epoch,
			},
		},
	})
	p := r.post(fmt.Sprint("/executions/message-", sequence, "/requeue"), "").refused(409,
		api.CodeUndecodable)
	if !strings.Contains(p.Detail, "cannot be decoded") {
		t.Errorf("detail %q", p.Detail)
	}
}

// failed publishes the start message of execution id(n), and records that the execution failed.
// change can modify the message first; nil changes nothing.
func (r *rig) failed(n int, change func(*execution.Start)) execution.Start {
	r.t.Helper()
	s := execution.Start{
		ID:         id(n),
		WorkflowID: "wf",
		NodeID:     "node",
		AccountID:  "was",
		Queue:      "default",
		Source:     execution.SourceWebhook,
		DeliveryID: fmt.Sprint("d-", n),
		AcceptedAt: epoch,
		TokenID:    "t",
		Payload: execution.Payload{
			ContentType: "x/y; z",
			Kind:        execution.BodyBinary,
			Body:        []byte("a\xff\x00"),
		},
		Headers: execution.Values{
			"X-Hub-Signature-256": {"sha256=1", "2"},
			"Content-Type":        {"x/y; z"},
		},
		Query: execution.Values{"q": {"", "%2"}},
	}
	if change != nil {
		change(&s)
	}
	sequence := r.message(stream.StartMessage(s))
	r.records(store.Batch{
		NewRecords: []store.Record{record(id(n), func(rec *store.Record) {
			rec.StreamSequence, rec.DeliveryID = sequence, s.DeliveryID
		})},
		Progress: []execution.Progress{failure(n, "it broke")},
	})
	return s
}

// starts returns the start messages in the stream that rerun or requeue the execution with the
// given ID.
func (r *rig) starts(id string) (found []*execution.Start) {
	r.t.Helper()
	info, err := r.streamHandle().Info(r.t.Context())
	r.check(err)
	for n := uint64(1); n <= info.State.LastSeq; n++ {
		msg, err := r.streamHandle().GetMsg(r.t.Context(), n)
		if err != nil {
			continue
		}
		if event, err := stream.Decode(msg.Subject, msg.Header, msg.Data); err == nil &&
			event.Start != nil && event.Start.RerunOf == id {
			found = append(found, event.Start)
		}
	}
	return found
}

func TestRequeue(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "none") // neither the plan nor the workflow's state matters
	r.put("/workflows/wf",
		`{"accountId":"acme","name":"n","queue":"mine","triggers":[{"nodeId":"node","samplePayload":1}]}`).is(201)

	original := r.failed(1, nil)
	watching := r.changes.Watch(time.Time{})
	defer watching.Cancel()
	as := decode[api.Started](r.post("/executions/"+id(1)+"/requeue", "").is(200)).ExecutionID
	if batch := <-watching.Batches; !slices.Equal(batch.IDs, []string{id(1)}) {
		t.Errorf("watchers were told of %v", batch.IDs)
	}
	begun := r.starts(id(1))
	if len(begun) != 1 || begun[0].ID != as || as == id(1) {
		t.Fatalf("%s: started %+v", as, begun)
	}
	got := begun[0]
	if got.WorkflowID != "wf" || got.NodeID != "node" || got.AccountID != "acme" ||
		got.Queue != "mine" || got.Source != execution.SourceRerun ||
		got.DeliveryID != "" || got.TokenID != "" || got.Payload.ContentType != "x/y; z" ||
		got.Payload.Kind != execution.BodyBinary ||
		string(got.Payload.Body) != "a\xff\x00" ||
		!maps.EqualFunc(got.Headers, original.Headers, slices.Equal) ||
		!maps.EqualFunc(got.Query, original.Query, slices.Equal) ||
		time.Since(got.AcceptedAt) > time.Minute || len(got.Trace) != 55 {
		t.Errorf("started %+v", got)
	}
	// The record of the original execution names the new execution. The original keeps the status
	// "failed", but is no longer in the list of dead letters.
	detail := decode[api.ExecutionDetail](r.get("/executions/" + id(1)).is(200))
	if detail.RequeuedAs != as || detail.Status != "failed" || *detail.Error != "it broke" {
		t.Errorf("%+v", detail)
	}
	if left := decode[api.List[api.DeadLetter]](r.get("/dead-letters").is(200)).Items; len(left) !=
		0 {
		t.Errorf("left: %+v", left)
	}
	if again := decode[api.Started](r.post("/executions/"+id(1)+"/requeue",
		"").is(200)).ExecutionID; again != as || len(r.starts(id(1))) != 1 {
		t.Errorf("again: %s, %d starts", again, len(r.starts(id(1))))
	}

	// The new execution fails as well, and is requeued as a third execution.
	_, sequence := r.lastStart()
	failure := failure(0, "again")
	failure.ID = as
	r.records(store.Batch{
		NewRecords: []store.Record{record(as, func(rec *store.Record) {
			rec.StreamSequence, rec.RerunOf = sequence, id(1)
		})},
		Progress: []execution.Progress{failure},
	})
	if third := decode[api.Started](r.post("/executions/"+as+"/requeue",
		"").is(200)).ExecutionID; third == as || third == id(1) {
		t.Errorf("the third is %s", third)
	}
}

func TestRequeueIsRefused(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "free")
	r.workflow("wf", "acme", "node")
	for n, status := range []execution.Status{
		execution.Queued, execution.Running, execution.Succeeded, execution.Rejected,
	} {
		batch := store.Batch{NewRecords: []store.Record{record(id(n))}}
		switch status { //nolint:exhaustive // failed is not refused
		case execution.Rejected:
			batch.NewRecords[0].Status = execution.Rejected
		case execution.Running, execution.Succeeded:
			step := failure(n, "")
			step.Status = status
			batch.Progress = []execution.Progress{step}
		}
		r.records(batch)
		if p := r.post("/executions/"+id(n)+"/requeue", "").refused(409,
			api.CodeNotFailed); !strings.Contains(p.Detail, string(status)) {
			t.Errorf("detail %q", p.Detail)
		}
	}
	r.post("/executions/"+id(99)+"/requeue", "").refused(404, api.CodeNotFound)

	r.failed(10, nil)
	_, sequence := r.lastStart()
	r.check(r.streamHandle().DeleteMsg(t.Context(), sequence))
	r.post("/executions/"+id(10)+"/requeue", "").refused(409, api.CodeInputExpired)

	r.failed(11, nil)
	r.delete("/workflows/wf").is(204)
	if p := r.post("/executions/"+id(11)+"/requeue", "").refused(404,
		api.CodeNotFound); !strings.Contains(p.Detail, `workflow "wf" is gone`) {
		t.Errorf("detail %q", p.Detail)
	}
	// Every dead letter that could not be requeued is still in the list, and was not started.
	if left := decode[api.List[api.DeadLetter]](r.get("/dead-letters").is(200)).Items; len(left) !=
		2 || len(r.starts(id(10)))+len(r.starts(id(11))) != 0 {
		t.Errorf("left: %+v", left)
	}
}

// If several calls requeue the same execution concurrently, exactly one new execution starts, even
// if a process crashes during a call.
func TestRequeueOnce(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "free")
	r.workflow("wf", "acme", "node")
	for n := range 10 {
		r.failed(n, nil)
		var all sync.WaitGroup
		var mu sync.Mutex
		answers := map[string]int{}
		for range 8 {
			all.Go(func() {
				as := decode[api.Started](r.post("/executions/"+id(n)+"/requeue",
					"").is(200)).ExecutionID
				mu.Lock()
				defer mu.Unlock()
				answers[as]++
			})
		}
		all.Wait()
		if len(answers) != 1 || len(r.starts(id(n))) != 1 {
			t.Errorf("%v, %d starts", answers, len(r.starts(id(n))))
		}
	}

	// An executor has published the start message of the new execution and crashed. The
	// deduplication window has passed, so the stream would store the message again. But the
	// database already has the new execution's record, so a requeue publishes nothing.
	r.failed(20, nil)
	as := execution.IDForRequeue(id(20))
	r.records(store.Batch{NewRecords: []store.Record{record(as)}})
	if got := decode[api.Started](r.post("/executions/"+id(20)+"/requeue",
		"").is(200)).ExecutionID; got != as || len(r.starts(id(20))) != 0 {
		t.Errorf("%s, %d starts", got, len(r.starts(id(20))))
	}
	if detail := decode[api.ExecutionDetail](r.get("/executions/" +
		id(20)).is(200)); detail.RequeuedAs != as {
		t.Errorf("%+v", detail)
	}

	// A client that can compute the new execution's ID has sent a report with this ID as its
	// Nats-Msg-Id. The start message has the same Nats-Msg-Id, but must not be discarded as a
	// duplicate of the report.
	r.failed(21, nil)
	as = execution.IDForRequeue(id(21))
	r.message(&nats.Msg{
		Subject: "executions.progress.default.wf." + id(21),
		Header:  nats.Header{jetstream.MsgIDHeader: {as}},
	}, nil)
	if got := decode[api.Started](r.post("/executions/"+id(21)+"/requeue",
		"").is(200)).ExecutionID; got != as || len(r.starts(id(21))) != 1 {
		t.Errorf("%s, %d starts", got, len(r.starts(id(21))))
	}
}

// The database refused a start message and a report, so they were put aside, but it accepts them
// now. Requeuing the start message records the execution under its original ID. Requeuing the
// report changes the execution's status.
func TestRequeueOfWhatWasPutAside(t *testing.T) {
	t.Parallel()
	var late []time.Time
	r := start(t, func(c *config, _ *http.Server) {
		c.OnRecordedLate = func(accepted time.Time) { late = append(late, accepted) }
	})
	r.account("acme", "free")
	r.workflow("wf", "acme", "node")
	s := execution.Start{
		ID:         id(1),
		WorkflowID: "wf",
		NodeID:     "node",
		AccountID:  "acme",
		Queue:      "default",
		Source:     execution.SourceWebhook,
		DeliveryID: "d",
		AcceptedAt: epoch,
		TokenID:    "t",
		Payload:    execution.Payload{Kind: execution.BodyText, Body: []byte("body")},
	}
	sequence := r.message(stream.StartMessage(s))
	aside := store.AsideMessage{
		StreamSequence: sequence,
		Subject:        "executions.start.default.wf.node",
		Reason:         store.RefusedReasonPrefix + "disk full",
		At:             epoch,
	}
	r.records(store.Batch{PutAside: []store.AsideMessage{aside}})
	name := fmt.Sprint("message-", sequence)
	got := string(r.get("/dead-letters").is(200).body)
	if items, _, _ := strings.Cut(got, `,"nextCursor"`); items != `{"items":[{"id":"`+name+
		`","kind":"refused","at":"2026-03-01T12:00:00.123456Z",`+
		`"reason":"the database refuses it: disk full","streamSequence":`+fmt.Sprint(sequence)+
		`,"subject":"executions.start.default.wf.node","workflowId":"wf","nodeId":"node"}]` {
		t.Errorf("%s", items)
	}
	for range 2 { // the second call changes nothing
		if as := decode[api.Started](r.post("/executions/"+name+"/requeue",
			"").is(200)).ExecutionID; as != id(1) {
			t.Errorf("recorded as %s", as)
		}
		detail := decode[api.ExecutionDetail](r.get("/executions/" + id(1)).is(200))
		if detail.Status != "queued" || detail.StreamSequence != sequence ||
			detail.DeliveryID != "d" || detail.BodyBytes != 4 {
			t.Errorf("%+v", detail)
		}
		if left := decode[api.List[api.DeadLetter]](r.get("/dead-letters").
			is(200)).Items; len(left) != 0 {
			t.Errorf("left: %+v", left)
		}
	}
	if len(late) != 1 || !late[0].Equal(epoch) {
		t.Errorf("recorded late: %v", late)
	}

	// Two reports were put aside. The first is about the execution that was recorded above. The
	// second is about an execution that has no record.
	step := failure(1, "it broke")
	reported := r.message(stream.ProgressMessage("default", "wf", "node", "", step))
	step.ID = id(2)
	lost := r.message(stream.ProgressMessage("default", "wf", "node", "", step))
	for _, n := range []uint64{reported, lost} {
		aside.StreamSequence, aside.Subject = n,
			"executions.progress.default.wf."+map[uint64]string{
				reported: id(1),
				lost:     id(2),
			}[n]
		r.records(store.Batch{PutAside: []store.AsideMessage{aside}})
	}
	r.post(fmt.Sprint("/executions/report-", reported, "/requeue"), "").is(200)
	if detail := decode[api.ExecutionDetail](r.get("/executions/" +
		id(1)).is(200)); detail.Status != "failed" {
		t.Errorf("%+v", detail)
	}
	r.post(fmt.Sprint("/executions/report-", lost, "/requeue"), "").refused(404, api.CodeNotFound)

	// A message that is no longer in the stream, or that never existed, cannot be requeued.
	reports, err := r.JetStream.Stream(t.Context(), stream.ProgressName)
	r.check(err)
	r.check(reports.DeleteMsg(t.Context(), lost))
	r.post(fmt.Sprint("/executions/report-", lost, "/requeue"), "").refused(409,
		api.CodeInputExpired)
	r.post("/executions/message-99/requeue", "").refused(404, api.CodeNotFound)
	r.post("/executions/message-x/requeue", "").refused(404, api.CodeNotFound)
}

// The dead letter of an execution shows the subject of the start message only if the subject can be
// derived from the record. In a queue with order keys or with its own stream, it cannot.
func TestTheSubjectOfADeadLetter(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "pro")
	r.put("/workflows/ordered", `{"accountId":"acme","name":"n","queue":"ordered",`+
		`"triggers":[{"nodeId":"node","orderKey":"ptr:/order"}]}`)
	r.put("/queues/own/stream", `{}`).is(200)
	var batch store.Batch
	for i, queue := range []string{"default", "ordered", "own"} {
		batch.NewRecords = append(batch.NewRecords,
			record(id(i), func(rec *store.Record) { rec.Queue = queue }))
		failed := failure(i, "it broke")
		failed.Queue = queue
		batch.Progress = append(batch.Progress, failed)
	}
	r.records(batch)
	got := map[string]string{}
	for _, d := range decode[api.List[api.DeadLetter]](r.get("/dead-letters").is(200)).Items {
		got[d.ID] = d.Subject
	}
	if want := map[string]string{
		id(0): "executions.start.default.wf.node", id(1): "", id(2): "",
	}; !maps.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
