package e2e

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
)

// New code reads what the first version left in NATS: streams with its settings, workflows with
// their tokens, messages that are not recorded yet, and delivery IDs.
func TestYesterdaysMessages(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	restore(t, server.Connect(t), filepath.Join("testdata", "yesterday", "streams.jsonl"))
	executor := launch(t, "executor", "--addr=127.0.0.1:0", "--ops-addr=127.0.0.1:0", "--nats-url="+server.URL(),
		"--database-url=sqlite:"+filepath.Join(t.TempDir(), "executions.db"), "--admin-token="+adminToken, "--public-url=https://hooks.example.com")
	client := apiclient.New("http://"+executor.Await(`"addr":"([^"]+)".*executor is ready`), adminToken)
	ingress := launch(t, "ingress", "--addr=127.0.0.1:0", "--ops-addr=127.0.0.1:0", "--nats-url="+server.URL())
	base := "http://" + ingress.Await(`"addr":"([^"]+)".*ingress is ready`)
	ctx := t.Context()

	w, err := client.Workflow(ctx, "orders")
	if err != nil || !w.Active || w.ActivatedAt.IsZero() || w.Queue != "shop" || w.AccountID != "acme" || len(w.Triggers) != 2 ||
		w.Triggers[0].Name != "From the shop" || w.RateLimit == nil || *w.RateLimit != (api.RateLimit{Requests: 500, WindowSeconds: 10}) {
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

	// These are the messages as they are recorded now.
	const repeated = "28b7b329-238a-82e9-a8ef-c85da1802b0d"
	for id, want := range map[string]struct{ source, status, delivery, input string }{
		repeated:                               {"webhook", "queued", "yesterday-1", `{"order": 7}`},
		"01a1fcd1-4d74-72e5-aad0-931bc255aed9": {"rerun", "queued", "", `{"order":1}`},
		"01a1fcd1-cb6d-7c88-a75e-e1cc8d3e9240": {"webhook", "queued", "", `{"body":"a text"}`},
		"01a1fcd1-cb7c-7cd6-aa2f-dfbfcbfa1ce0": {"webhook", "queued", "", `{"body":"/wD+","bodyEncoding":"base64"}`},
		"f1044fae-3529-8245-a964-aa92993386ed": {"webhook", "rejected", "r1", "null"},
		"01a1fcd1-cb98-76d5-a732-73f5a12ccc31": {"webhook", "succeeded", "", `{"hello":"world"}`},
	} {
		e := recorded(t, client, id, func(e api.ExecutionDetail) bool { return e.Status == want.status })
		if e.Source != want.source || e.DeliveryID != want.delivery || string(e.Input) != want.input || e.AcceptedAt.After(time.Now()) {
			t.Errorf("%s: %+v, input %s; want %+v", id, e, e.Input, want)
		}
	}
	recorded(t, client, repeated, func(e api.ExecutionDetail) bool { return e.Duplicates == 1 })

	// The old token and the old delivery ID still work.
	_, path, _ := strings.Cut(trigger.URL, "https://hooks.example.com")
	send := func(delivery string) answer {
		t.Helper()
		a, err := post(ctx, base+path, map[string]string{"X-GitHub-Delivery": delivery, "Content-Type": "application/json"}, strings.NewReader(`{"order": 7}`))
		if err != nil || a.status != 200 {
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
	// A record that the first version wrote can be changed.
	if _, err := client.Deactivate(ctx, "orders"); err != nil {
		t.Error(err)
	}
	if a, err := post(ctx, base+path, nil, strings.NewReader("")); err != nil || a.Code != "workflow_inactive" {
		t.Errorf("%+v, %v", a, err)
	}
}

// restore creates streams and puts messages into them, from a file that has one stream or message
// per line.
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
