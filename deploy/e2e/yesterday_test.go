package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/deploy/lab/deliver"
	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/runner"
	"github.com/hookstart/hookstart/shared/stream"
)

// yesterdayFile is the path of a file that contains what the programs of the first release left in
// NATS: streams and messages.
var yesterdayFile = filepath.Join("testdata", "yesterday", "streams.jsonl")

// The current version can read what the first release left in NATS: streams with the settings of
// that time, workflows with their tokens, unrecorded messages, and delivery IDs.
func TestYesterdaysMessages(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	restore(t, server.Connect(t), yesterdayFile)
	executor := launch(t, "executor", "--addr=127.0.0.1:0", "--ops-addr=127.0.0.1:0",
		"--nats-url="+server.URL(), "--adopt-database", "--retention=876000h",
		"--database-url=sqlite:"+filepath.Join(t.TempDir(), "executions.db"),
		"--admin-token="+adminToken, "--public-url=https://hooks.example.com")
	client := apiclient.New("http://"+executor.Await(`"addr":"([^"]+)".*executor is ready`),
		adminToken)
	ingress := launch(t, "ingress", "--addr=127.0.0.1:0", "--ops-addr=127.0.0.1:0",
		"--nats-url="+server.URL())
	base := "http://" + ingress.Await(`"addr":"([^"]+)".*ingress is ready`)
	ctx := t.Context()

	w, err := client.Workflow(ctx, "orders")
	if err != nil || !w.Active || w.ActivatedAt.IsZero() || w.Queue != "shop" ||
		w.AccountID != "acme" || len(w.Triggers) != 2 ||
		w.Triggers[0].Name != "From the shop" || w.RateLimit == nil ||
		*w.RateLimit != (api.RateLimit{Requests: 500, WindowSeconds: 10}) {
		t.Errorf("the workflow: %+v, %v", w, err)
	}
	trigger, err := client.Trigger(ctx, "orders", "shop")
	if err != nil || string(trigger.SamplePayload) != `{"order":1}` {
		t.Errorf("the trigger: %+v, %v", trigger, err)
	}
	paused, err := client.Workflow(ctx, "paused")
	if err != nil || paused.Active {
		t.Errorf("the inactive workflow: %+v, %v", paused, err)
	}

	// want holds the executions that the current version must record from the messages of the first
	// release.
	type message struct{ source, status, delivery, input string }
	want := map[message]bool{
		{"webhook", "queued", "yesterday-1", `{"order": 7}`}:                 true,
		{"rerun", "queued", "", `{"order":1}`}:                               true,
		{"webhook", "queued", "", `{"body":"a text"}`}:                       true,
		{"webhook", "queued", "", `{"body":"/wD+","bodyEncoding":"base64"}`}: true,
		{"webhook", "rejected", "r1", "{}"}:                                  true,
		{"webhook", "succeeded", "", `{"hello":"world"}`}:                    true,
		{"webhook", "failed", "", `{"hello":"nobody"}`}:                      true,
	}
	(&upgraded{t: t}).eventually("all executions are recorded", func() bool {
		found, err := client.Executions(ctx, apiclient.ExecutionFilter{}, apiclient.Page{})
		ended := 0
		for _, e := range found.Items {
			if e.Status == "succeeded" || e.Status == "failed" {
				ended++
			}
		}
		return err == nil && len(found.Items) == len(want) && ended == 2
	})
	repeated := ""
	found, err := client.Executions(ctx, apiclient.ExecutionFilter{}, apiclient.Page{})
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range found.Items {
		e, err := client.Execution(ctx, one.ExecutionID)
		m := message{e.Source, e.Status, e.DeliveryID, string(e.Input)}
		if err != nil || !want[m] || e.AcceptedAt.After(time.Now()) ||
			e.Status == "succeeded" && e.Attempts != 1 {
			t.Errorf("%+v, input %s, %v", e, e.Input, err)
		}
		delete(want, m)
		if e.DeliveryID == "yesterday-1" {
			repeated = e.ExecutionID
		}
	}
	for m := range want {
		t.Errorf("not recorded: %+v", m)
	}
	recorded(t, client, repeated, func(e api.ExecutionDetail) bool { return e.Duplicates == 1 })

	// A token from the first release still works, and a delivery ID from it is recognized as a
	// repeat.
	_, path, _ := strings.Cut(trigger.URL, "https://hooks.example.com")
	send := func(delivery string) deliver.Answer {
		t.Helper()
		a, err := post(ctx, base+path, map[string]string{
			"X-Webhook-Delivery-Id": delivery,
			"Content-Type":          "application/json",
		}, strings.NewReader(`{"order": 7}`))
		if err != nil || a.Status != 200 {
			t.Fatalf("%+v, %v", a, err)
		}
		return a
	}
	if a := send("yesterday-1"); !a.Deduplicated || a.ExecutionID != repeated {
		t.Errorf("yesterday's delivery again: %+v", a)
	}
	if a := send("today-1"); a.Deduplicated {
		t.Errorf("a new delivery: %+v", a)
	}
	// The record of a workflow that the first release wrote can be changed.
	if _, err := client.Deactivate(ctx, "orders"); err != nil {
		t.Error(err)
	}
	if a, err := post(ctx, base+path, nil, strings.NewReader("")); err != nil ||
		a.Code != "workflow_inactive" {
		t.Errorf("%+v, %v", a, err)
	}
}

// restore recreates the streams and the messages that a file describes, one per line.
func restore(t *testing.T, nc *nats.Conn, file string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var line struct {
			Create  json.RawMessage
			Subject string
			Header  nats.Header
			Data    []byte
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		msg := &nats.Msg{Subject: line.Subject, Header: line.Header, Data: line.Data}
		if line.Create != nil {
			var stream struct{ Name string }
			if err := json.Unmarshal(line.Create, &stream); err != nil {
				t.Fatal(err)
			}
			msg = &nats.Msg{Subject: "$JS.API.STREAM.CREATE." + stream.Name, Data: line.Create}
		}
		answer, err := nc.RequestMsg(msg, 10*time.Second)
		if err != nil || strings.Contains(string(answer.Data), `"error"`) {
			t.Fatalf("%s: %v %s", msg.Subject, err, answer.Data)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
}

// TestMakeYesterday writes yesterdayFile if HOOKSTART_TEST_YESTERDAY names the file. This was done
// once, for the first release. The file must not be regenerated, because every later version must
// be able to read it.
//
//	file=$PWD/deploy/e2e/testdata/yesterday/streams.jsonl
//	HOOKSTART_TEST_YESTERDAY=$file go test -run TestMakeYesterday ./deploy/e2e
func TestMakeYesterday(t *testing.T) {
	file := os.Getenv("HOOKSTART_TEST_YESTERDAY")
	if file == "" {
		t.Skip("HOOKSTART_TEST_YESTERDAY names no file")
	}
	server := natstest.Start(t)
	executor := launch(t, "executor", "--addr=127.0.0.1:0", "--ops-addr=127.0.0.1:0",
		"--nats-url="+server.URL(),
		"--database-url=sqlite:"+filepath.Join(t.TempDir(), "executions.db"),
		"--admin-token="+adminToken, "--public-url=https://hooks.example.com")
	client := apiclient.New("http://"+executor.Await(`"addr":"([^"]+)".*executor is ready`),
		adminToken)
	ingress := launch(t, "ingress", "--addr=127.0.0.1:0", "--ops-addr=127.0.0.1:0",
		"--nats-url="+server.URL())
	base := "http://" + ingress.Await(`"addr":"([^"]+)".*ingress is ready`)
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, account := range []string{"acme", "small"} {
		_, err := client.PutAccount(ctx, account, api.PutAccount{Name: account, Plan: "pro"})
		must(err)
	}
	for id, put := range map[string]api.PutWorkflow{
		"orders": {AccountID: "acme", Name: "Orders", Queue: "shop", RateLimit: &api.RateLimit{
			Requests:      500,
			WindowSeconds: 10,
		}, Triggers: []api.PutTrigger{
			{NodeID: "shop", Name: "From the shop", SamplePayload: json.RawMessage(`{"order":1}`)},
			{NodeID: "till", Filter: json.RawMessage(`{"ptr:/till": [1, 2]}`)},
		}},
		"demo": {AccountID: "small", Name: "Demo", Triggers: []api.PutTrigger{{NodeID: "node"}}},
		"paused": {
			AccountID: "small",
			Name:      "Paused",
			Triggers:  []api.PutTrigger{{NodeID: "node"}},
		},
	} {
		_, err := client.PutWorkflow(ctx, id, put)
		must(err)
		if id != "paused" {
			_, err := client.Activate(ctx, id)
			must(err)
		}
	}
	_, err := client.RerunTrigger(ctx, "orders", "shop")
	must(err)
	send := func(workflow, node, contentType, delivery, body string, status int) {
		t.Helper()
		trigger, err := client.Trigger(ctx, workflow, node)
		must(err)
		_, path, _ := strings.Cut(trigger.URL, "https://hooks.example.com")
		a, err := post(ctx, base+path, map[string]string{
			"X-Webhook-Delivery-Id": delivery,
			"Content-Type":          contentType,
		}, strings.NewReader(body))
		if err != nil || a.Status != status {
			t.Fatalf("%+v, %v", a, err)
		}
	}
	send("orders", "shop", "application/json", "yesterday-1", `{"order": 7}`, http.StatusOK)
	send("orders", "shop", "application/json", "yesterday-1", `{"order": 7}`, http.StatusOK)
	send("orders", "shop", "text/plain", "", "a text", http.StatusOK)
	send("orders", "shop", "application/octet-stream", "", "\xff\x00\xfe", http.StatusOK)
	send("paused", "node", "application/json", "r1", `{}`, http.StatusForbidden)
	send("demo", "node", "application/json", "", `{"hello":"world"}`, http.StatusOK)
	send("demo", "node", "application/json", "", `{"hello":"nobody"}`, http.StatusOK)
	js, err := jetstream.New(server.Connect(t))
	must(err)
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		done <- runner.Run(running, server.Connect(t), runner.Options{
			Queue: "default",
			Group: "main",
		}, func(_ context.Context, e runner.Execution) (any, error) {
			if strings.Contains(string(e.Payload.Body), "nobody") {
				return nil, runner.Permanent(errors.New("nobody is there"))
			}
			return "done", nil
		})
	}()
	streams := []string{
		stream.ExecutionsName, stream.ReportsName, stream.ProgressName, "KV_registry",
		"KV_registry_secrets",
	}
	(&upgraded{t: t}).eventually("the streams have all messages", func() bool {
		progress, err := js.Stream(ctx, stream.ProgressName)
		must(err)
		reports, err := js.Stream(ctx, stream.ReportsName)
		must(err)
		counted, err := reports.Info(ctx, jetstream.WithSubjectFilter(stream.DuplicatesSubject))
		must(err)
		return progress.CachedInfo().State.Msgs >= 2 && len(counted.State.Subjects) > 0
	})
	stop()
	must(<-done)
	executor.Terminate()
	ingress.Terminate()
	f, err := os.Create(file)
	must(err)
	defer func() { must(f.Close()) }()
	lines := json.NewEncoder(f)
	lines.SetEscapeHTML(false)
	for _, name := range streams {
		s, err := js.Stream(ctx, name)
		must(err)
		must(lines.Encode(map[string]any{"create": s.CachedInfo().Config}))
		for sequence := uint64(1); sequence <= s.CachedInfo().State.LastSeq; sequence++ {
			msg, err := s.GetMsg(ctx, sequence)
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				continue // a later message has replaced this one
			}
			must(err)
			for name := range msg.Header {
				if strings.HasPrefix(name, "Nats-") && name != jetstream.MsgIDHeader {
					// Of NATS's own headers, keep only the message ID. The others were added by the
					// server when the message was read, or were conditions for storing the message,
					// which would not hold again.
					msg.Header.Del(name)
				}
			}
			must(lines.Encode(map[string]any{
				"subject": msg.Subject,
				"header":  msg.Header,
				"data":    msg.Data,
			}))
		}
	}
}
