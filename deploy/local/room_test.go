package local_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/hookstart/hookstart/deploy/local"
	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/shared/ops/logtest"
	"github.com/hookstart/hookstart/shared/program"
)

// Start messages can fill only a part of the NATS storage. Once that part is full, senders are
// refused and /readyz gives the reason. Accepted executions still finish, repeated deliveries are
// still recognized, and workflows can still be changed.
func TestRoomIsLeftForReportsAndChanges(t *testing.T) {
	t.Parallel()
	var c local.Config
	if err := program.Parse(&c, "--ingress-addr=127.0.0.1:0", "--executor-addr=127.0.0.1:0",
		"--nats-addr=127.0.0.1:0", "--ops-addr=127.0.0.1:0", "--data-dir="+t.TempDir(),
		"--admin-token="+adminToken, "--max-body-bytes=1000000"); err != nil {
		t.Fatal(err)
	}
	ready, done := make(chan local.StartedServices, 1), make(chan error, 1)
	// A tenth of NATSMaxStore is reserved for messages other than start messages. Between two
	// measurements of the used storage, the test cannot send enough start messages to fill this
	// reserve.
	c.NATSMaxStore, c.Out, c.Log = 400<<20, io.Discard, logtest.Discard()
	c.OnReady = func(s local.StartedServices) { ready <- s }
	ctx, stop := context.WithCancel(context.Background())
	go func() { done <- local.Run(ctx, c) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	var r running
	select {
	case s := <-ready:
		r = running{executor: s.ExecutorURL, ops: s.OpsURL, webhook: s.WebhookURL}
	case err := <-done:
		done <- nil
		t.Fatal(err)
	}
	body := append(append([]byte(`"`), bytes.Repeat([]byte("x"), 900_000)...), '"')
	deliver := func(id string) answer {
		t.Helper()
		a, err := r.post(t.Context(), id, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	var ids []string
	for {
		a := deliver(fmt.Sprint(len(ids)))
		if a.status == 503 && a.Code == "storage_full" {
			break
		}
		if a.status != 200 || len(ids) == 2000 {
			t.Fatalf("after %d: %+v", len(ids), a)
		}
		ids = append(ids, a.ExecutionID)
	}
	r.awaitReadyz(t, "NATS storage: the streams hold ")
	if a := deliver("0"); a.status != 200 || !a.Deduplicated || a.ExecutionID != ids[0] {
		t.Errorf("a repeat: %+v", a)
	}
	if _, err := r.client().Deactivate(t.Context(), "demo"); err != nil {
		t.Error(err)
	}
	r.awaitStatus(t, ids[len(ids)-1], "succeeded")
	failed, err := r.client().Executions(t.Context(), apiclient.ExecutionFilter{Status: "failed"},
		apiclient.Page{})
	if err != nil || len(failed.Items) > 0 {
		t.Errorf("%+v, %v", failed, err)
	}
}
