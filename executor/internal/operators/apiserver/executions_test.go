package apiserver_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

func TestExecutionsAreListed(t *testing.T) {
	t.Parallel()
	r := start(t)
	if got := string(r.get("/executions").is(200).body); got != `{"items":[],"nextCursor":""}` {
		t.Errorf("no executions: %s", got)
	}
	// The executions come in pairs with the same acceptance time, so that only the IDs determine
	// the order within a pair.
	const n = 12
	records := make([]store.Record, n)
	for i := range records {
		records[i] = record(id(i), func(rec *store.Record) {
			rec.AcceptedAt = epoch.Add(time.Duration(i/2) * time.Second)
			if i%3 == 0 {
				rec.WorkflowID = "third"
			}
			if i%4 == 0 {
				rec.Status, rec.DeliveryID = execution.Rejected, "a delivery/&?"
			}
			if i == 5 {
				rec.Source = execution.SourceRerun
			}
		})
	}
	r.records(store.Batch{NewRecords: records})
	idsWhere := func(pick func(int) bool) (ids []string) {
		for i := n - 1; i >= 0; i-- {
			if pick(i) {
				ids = append(ids, id(i))
			}
		}
		return ids
	}
	at := func(seconds float64) string {
		return epoch.Add(time.Duration(seconds * float64(time.Second))).Format(time.RFC3339Nano)
	}
	for query, pick := range map[string]func(int) bool{
		"":                                       func(int) bool { return true },
		"workflowId=third":                       func(i int) bool { return i%3 == 0 },
		"status=rejected":                        func(i int) bool { return i%4 == 0 },
		"status=running":                         func(int) bool { return false },
		"source=rerun":                           func(i int) bool { return i == 5 },
		"deliveryId=a+delivery/%26?":             func(i int) bool { return i%4 == 0 },
		"since=" + at(2):                         func(i int) bool { return i/2 >= 2 },
		"until=" + at(2):                         func(i int) bool { return i/2 < 2 },
		"since=" + at(1.5) + "&until=" + at(4.5): func(i int) bool { return i/2 >= 2 && i/2 <= 4 },
		"since=2026-03-01T13:00:01.123456%2B01:00": func(i int) bool {
			return i/2 >= 1
		},
		"workflowId=third&status=rejected&since=" + at(1): func(i int) bool {
			return i%12 == 0 && i/2 >= 1
		},
		"workflowId=&status=&source=&deliveryId=&since=&until=": func(int) bool { return true },
		"since=" + at(4) + "&until=" + at(1): func(int) bool {
			return false
		},
		"workflowId=%00%FF&deliveryId=" + strings.Repeat("x", 3000): func(int) bool {
			return false
		},
	} {
		for _, limit := range []int{1, 2, 5, 200} {
			r.wantPages(fmt.Sprintf("/executions?%s&limit=%d", query, limit), idsWhere(pick), limit,
				executionIDs)
		}
	}
	for _, c := range []struct{ query, field string }{
		{"status=done", "status"},
		{"status=QUEUED", "status"},
		{"source=cron", "source"},
		{"since=yesterday", "since"},
		{"until=2026-03-01", "until"},
		{"since=2026-03-01T12:00:00", "since"},
		{"until=1772366400", "until"},
		{"status=%zz", "query"},
		{"status=failed;source=rerun", "query"},
		{"since=2026-03-01T13:00:00+01:00", "since"}, // an unescaped + means a space
	} {
		says := ""
		if c.field == "since" || c.field == "until" {
			says = "2026-01-31T12:00:00Z" // the correct format
		}
		r.wantInvalid(r.get("/executions?"+c.query), c.field, says)
	}
}

func TestExecutionRecord(t *testing.T) {
	t.Parallel()
	r := start(t)
	webhook := execution.Start{
		ID:         id(1),
		WorkflowID: "wf",
		NodeID:     "node",
		AccountID:  "acme",
		Queue:      "default",
		Source:     execution.SourceWebhook,
		DeliveryID: "d-1",
		AcceptedAt: epoch,
		Payload: execution.Payload{
			ContentType: "application/json",
			Kind:        execution.BodyJSON,
			Body:        []byte(`{ "a" : "<&>" }`),
		},
		Headers:  execution.Values{"X-Multi": {"1", "2"}},
		Query:    execution.Values{"q": {""}},
		OrderKey: "key",
	}
	sequence := r.message(stream.StartMessage(webhook))
	r.records(store.Batch{
		NewRecords: []store.Record{record(id(1), func(rec *store.Record) {
			rec.DeliveryID, rec.StreamSequence, rec.BodyBytes = "d-1", sequence, 15
		})},
		Progress: []execution.Progress{
			{
				ID:         id(1),
				Queue:      "default",
				WorkflowID: "wf",
				Status:     execution.Running,
				At:         epoch.Add(time.Second),
			},
			{
				ID:         id(1),
				Queue:      "default",
				WorkflowID: "wf",
				Status:     execution.Succeeded,
				At:         epoch.Add(2 * time.Second),
				Attempt:    2,
				Output:     []byte(`{ "out" : 1.50 }`),
			},
		},
	})
	r.check(r.store.AddDuplicates(t.Context(), "report", epoch, map[string]int64{id(1): 3}))
	want := `{"executionId":"` + id(1) +
		`","accountId":"acme","workflowId":"wf","nodeId":"node","source":"webhook","status":"succeeded",` +
		`"deliveryId":"d-1","verified":false,"acceptedAt":"2026-03-01T12:00:00.123456Z","recordedAt":"2026-03-01T12:00:00.124456Z",` +
		`"startedAt":"2026-03-01T12:00:01.123456Z","finishedAt":"2026-03-01T12:00:02.123456Z","contentType":"application/json",` +
		fmt.Sprintf(
			`"bodyBytes":15,"duplicates":3,"queue":"default","attempts":2,"streamSequence":%d`,
			sequence,
		)
	message, err := r.streamHandle().GetMsg(t.Context(), sequence)
	r.check(err)
	stored := message.Time.UTC().Truncate(time.Microsecond).Format(time.RFC3339Nano)
	detail := want + `,"orderKey":"key","storedAt":"` + stored +
		`","headers":{"X-Multi":["1","2"]},"query":{"q":[""]},"error":null,"input":{ "a" : "<&>" },"output":{ "out" : 1.50 }}`
	if got := string(r.get("/executions/" + id(1)).is(200).body); got != detail {
		t.Errorf("detail\n got %s\nwant %s", got, detail)
	}
	if got := string(r.get("/executions").is(200).body); got != `{"items":[`+want+
		`}],"nextCursor":""}` {
		t.Errorf("list\n got %s\nwant %s", got, want)
	}

	// A queued rerun has neither the fields that only webhook requests have nor the fields that
	// later states set.
	rerun := webhook
	rerun.ID, rerun.Source, rerun.DeliveryID, rerun.RerunOf, rerun.Headers, rerun.Query = id(2),
		execution.SourceRerun, "", id(1), nil, nil
	rerun.OrderKey = ""
	sequence = r.message(stream.StartMessage(rerun))
	r.records(store.Batch{NewRecords: []store.Record{record(id(2), func(rec *store.Record) {
		rec.Source, rec.RerunOf, rec.StreamSequence = execution.SourceRerun, id(1), sequence
	})}})
	got := string(r.get("/executions/" + id(2)).is(200).body)
	for _, absent := range []string{
		"deliveryId", "startedAt", "finishedAt", "inputExpired", "orderKey",
	} {
		if strings.Contains(got, absent) {
			t.Errorf("%s in %s", absent, got)
		}
	}
	for _, present := range []string{
		`"rerunOf":"` + id(1) + `"`, `"headers":{}`, `"query":{}`, `"output":null`, `"error":null`,
	} {
		if !strings.Contains(got, present) {
			t.Errorf("no %s in %s", present, got)
		}
	}

	for _, unknown := range []string{
		id(99), "x", "%00", strings.ToUpper(id(99)), strings.Repeat("x", 4000),
	} {
		r.get("/executions/"+unknown).refused(404, api.CodeNotFound)
	}
}

func TestExecutionErrors(t *testing.T) {
	t.Parallel()
	r := start(t)
	sequence := r.message(stream.RejectedMessage(execution.Rejection{
		ID:           id(1),
		WorkflowID:   "wf",
		NodeID:       "node",
		AccountID:    "acme",
		Queue:        "default",
		At:           epoch,
		Payload:      execution.Payload{ContentType: "text/plain"},
		DeclaredSize: 9,
		Headers:      execution.Values{"X-A": {"b"}},
		Query:        execution.Values{"c": {"d"}},
		Code:         "workflow_inactive",
	}))
	failed := r.message(stream.StartMessage(execution.Start{
		ID:         id(2),
		WorkflowID: "wf",
		NodeID:     "node",
		AccountID:  "acme",
		Queue:      "default",
		Source:     execution.SourceWebhook,
		AcceptedAt: epoch,
		Payload:    execution.Payload{Kind: execution.BodyBinary, Body: []byte{0xff}},
	}))
	r.records(store.Batch{
		NewRecords: []store.Record{
			record(id(1), func(rec *store.Record) {
				rec.Status, rec.Error, rec.StreamSequence = execution.Rejected, "workflow_inactive",
					sequence
			}),
			record(id(2), func(rec *store.Record) { rec.StreamSequence = failed }),
		},
		Progress: []execution.Progress{
			{
				ID:         id(2),
				Queue:      "default",
				WorkflowID: "wf",
				Status:     execution.Failed,
				At:         epoch,
				Error:      "it broke",
			},
		},
	})
	rejected := r.get("/executions/" + id(1)).is(200)
	detail := decode[api.ExecutionDetail](rejected)
	if string(detail.Input) != "null" || detail.InputExpired || detail.Headers["X-A"][0] != "b" ||
		detail.Query["c"][0] != "d" || *detail.Error != "workflow_inactive" {
		t.Errorf("rejected: %s", rejected.body)
	}
	broken := r.get("/executions/" + id(2)).is(200)
	detail = decode[api.ExecutionDetail](broken)
	if string(detail.Input) != `{"body":"/w==","bodyEncoding":"base64"}` ||
		*detail.Error != "it broke" || string(detail.Output) != "null" {
		t.Errorf("failed: %s", broken.body)
	}
}

func TestInputsAreUnchanged(t *testing.T) {
	t.Parallel()
	r := start(t)
	for i, input := range []string{
		strings.Repeat("[", 51_000) + strings.Repeat("]", 51_000),
		strings.Repeat(`{"":`, 20_000) + "0" + strings.Repeat("}", 20_000),
		" \r\n\t[ 1.0 , 1e5,-0 ] ", `{"a":1,"a":2}`, "\"\u2028<>&\\u003c\\ud800\"",
		`123456789012345678901234567890.10`, `null`, `""`,
	} {
		sequence := r.message(stream.StartMessage(execution.Start{
			ID:         id(i),
			WorkflowID: "wf",
			NodeID:     "node",
			AccountID:  "acme",
			Queue:      "default",
			Source:     execution.SourceWebhook,
			AcceptedAt: epoch,
			Payload: execution.Payload{
				ContentType: "application/json",
				Kind:        execution.BodyJSON,
				Body:        []byte(input),
			},
		}))
		r.records(store.Batch{
			NewRecords: []store.Record{record(id(i), func(rec *store.Record) {
				rec.StreamSequence = sequence
			})},
			Progress: []execution.Progress{
				{
					ID:         id(i),
					Queue:      "default",
					WorkflowID: "wf",
					Status:     execution.Succeeded,
					At:         epoch,
					Output:     []byte(input),
				},
			},
		})
		body := r.get("/executions/" + id(i)).is(200).body
		text := strings.TrimSpace(input)
		if !bytes.HasSuffix(body, []byte(`,"input":`+text+`,"output":`+text+`}`)) {
			t.Errorf("%.100q became %.1000s", input, body)
		}
		if !execution.ValidJSON(body) {
			t.Errorf("%.100q: the answer is not JSON", input)
		}
	}
}

func TestExpiredInput(t *testing.T) {
	t.Parallel()
	r := start(t)
	payload := execution.Payload{
		ContentType: "application/json",
		Kind:        execution.BodyJSON,
		Body:        []byte(`1`),
	}
	of := func(n int) uint64 {
		return r.message(stream.StartMessage(execution.Start{
			ID:         id(n),
			WorkflowID: "wf",
			NodeID:     "node",
			AccountID:  "acme",
			Queue:      "default",
			Source:     execution.SourceWebhook,
			AcceptedAt: epoch,
			Payload:    payload,
		}))
	}
	gone, others := of(1), of(2)
	r.check(r.streamHandle().DeleteMsg(t.Context(), gone))
	r.records(store.Batch{NewRecords: []store.Record{
		record(id(1), func(rec *store.Record) { rec.StreamSequence = gone }),
		// The message at this sequence belongs to execution 2, not to execution 3.
		record(id(3), func(rec *store.Record) { rec.StreamSequence = others }),
		record(id(4), func(rec *store.Record) { rec.StreamSequence = 1 << 40 }),
	}})
	for _, n := range []int{1, 3, 4} {
		a := r.get("/executions/" + id(n)).is(200)
		detail := decode[api.ExecutionDetail](a)
		if string(detail.Input) != "null" || !detail.InputExpired || len(detail.Headers) != 0 ||
			detail.ExecutionID != id(n) {
			t.Errorf("%d: %s", n, a.body)
		}
	}
}

func TestReruns(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "none") // neither the plan nor the workflow's state matters
	r.put(
		"/workflows/wf",
		`{"accountId":"acme","name":"n","queue":"mine","triggers":[{"nodeId":"node","samplePayload":{ "s" :1}},{"nodeId":"bare"}]}`,
	).is(201)

	check := func(a answer, rerunOf string) string {
		t.Helper()
		started := decode[api.Started](a.is(200))
		begun, sequence := r.lastStart()
		if begun.ID != started.ExecutionID || begun.WorkflowID != "wf" || begun.NodeID != "node" ||
			begun.AccountID != "acme" || begun.Queue != "mine" ||
			begun.Source != execution.SourceRerun || begun.RerunOf != rerunOf ||
			begun.DeliveryID != "" ||
			begun.TokenID != "" ||
			begun.Payload.Kind != execution.BodyJSON ||
			begun.Payload.ContentType != "application/json" ||
			string(begun.Payload.Body) != `{ "s" :1}` ||
			time.Since(begun.AcceptedAt) > time.Minute || len(begun.Trace) != 55 {
			t.Errorf("%s started %+v", a.call, begun)
		}
		msg, err := r.streamHandle().GetMsg(t.Context(), sequence)
		r.check(err)
		if msg.Subject != "executions.start.mine.wf.node" ||
			msg.Header.Get(jetstream.MsgIDHeader) != "" {
			t.Errorf("subject %s, header %v", msg.Subject, msg.Header)
		}
		return started.ExecutionID
	}
	first := check(r.post("/workflows/wf/triggers/node/rerun", ""), "")
	if second := check(r.post("/workflows/wf/triggers/node/rerun", ""), ""); second == first ||
		second[14] != '7' {
		t.Errorf("IDs %s, %s", first, second)
	}
	r.post("/workflows/wf/triggers/bare/rerun", "").refused(409, api.CodeSamplePayloadMissing)
	r.post("/workflows/wf/triggers/none/rerun", "").refused(404, api.CodeNotFound)

	r.records(store.Batch{NewRecords: []store.Record{
		record(id(1)),
		record(id(2), func(rec *store.Record) { rec.NodeID = "bare" }),
		record(id(3), func(rec *store.Record) { rec.NodeID = "was" }),
		record(id(4), func(rec *store.Record) { rec.WorkflowID = "was" }),
	}})
	check(r.post("/executions/"+id(1)+"/rerun", ""), id(1))
	r.post("/executions/"+id(2)+"/rerun", "").refused(409, api.CodeSamplePayloadMissing)
	if p := r.post("/executions/"+id(3)+"/rerun", "").refused(404,
		api.CodeNotFound); !strings.Contains(p.Detail,
		`trigger node "was" of workflow "wf" is gone`) {
		t.Errorf("detail %q", p.Detail)
	}
	if p := r.post("/executions/"+id(4)+"/rerun", "").refused(404,
		api.CodeNotFound); !strings.Contains(p.Detail, `workflow "was" is gone`) {
		t.Errorf("detail %q", p.Detail)
	}
	if p := r.post("/executions/"+id(5)+"/rerun", "").refused(404,
		api.CodeNotFound); !strings.Contains(p.Detail, "There is no execution") {
		t.Errorf("detail %q", p.Detail)
	}

	// A sample payload may be nested more deeply than encoding/json allows. The rerun uses the
	// current sample payload.
	deep := strings.Repeat("[", 51_000) + strings.Repeat("]", 51_000)
	r.put("/workflows/wf/triggers/node/sample-payload", deep).is(200)
	r.post("/executions/"+id(1)+"/rerun", "").is(200)
	if begun, _ := r.lastStart(); string(begun.Payload.Body) != deep {
		t.Error("the deep sample is not what runs")
	}
}

func TestEveryTimeIsUTC(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "free")
	r.workflow("wf", "acme", "n")
	r.post("/workflows/wf/activate", "").is(200)
	var times []string
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for name, member := range v {
				if text, ok := member.(string); ok && strings.HasSuffix(name, "At") {
					times = append(times, text)
				}
				walk(member)
			}
		case []any:
			for _, member := range v {
				walk(member)
			}
		}
	}
	for _, path := range []string{"/accounts", "/workflows", "/workflows/wf/triggers/n"} {
		var v any
		r.check(json.Unmarshal(r.get(path).is(200).body, &v))
		walk(v)
	}
	if len(times) != 5 || slices.ContainsFunc(times, func(s string) bool {
		at, err := time.Parse(time.RFC3339Nano, s)
		return err != nil || !strings.HasSuffix(s, "Z") || time.Since(at) > time.Minute
	}) {
		t.Errorf("times %q", times)
	}
}
