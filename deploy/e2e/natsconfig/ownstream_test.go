package natsconfig

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/deploy/lab/deliver"
	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/shared/stream"
)

// TestAnOwnStreamOutlivesAFullSharedOne checks that an ingress with the permissions of the role
// ingress stays ready while the shared stream is full, and still accepts requests for a queue that
// has its own stream.
func TestAnOwnStreamOutlivesAFullSharedOne(t *testing.T) {
	t.Parallel()
	s, log := startOne(t), listen(t)
	flags := []string{
		"--addr=127.0.0.1:0", "--ops-addr=127.0.0.1:0", "--nats-url=" + s.url,
		"--nats-ca=" + secret("ca.crt"),
	}
	ready, _ := runIngress(t, log, flags)
	operators := runExecutor(t, log, append(flags, "--nats-creds="+secret("executor.nk"),
		"--admin-token=admin", "--replicas=1", "--registry-copy="+registryCopy,
		"--public-url=http://hooks.example"))
	addresses := <-ready

	ctx := t.Context()
	if _, err := operators.PutAccount(ctx, "acme", api.PutAccount{
		Name: "Acme",
		Plan: "ultra",
	}); err != nil {
		t.Fatal(err)
	}
	urls := map[string]string{} // keyed by queue
	for _, queue := range []string{"shared", "own"} {
		_, err := operators.PutWorkflow(ctx, queue, api.PutWorkflow{
			AccountID: "acme",
			Name:      queue,
			Queue:     queue,
			Triggers:  []api.PutTrigger{{NodeID: "node"}},
		})
		if err == nil {
			_, err = operators.Activate(ctx, queue)
		}
		if err != nil {
			t.Fatal(err)
		}
		trigger, err := operators.Trigger(ctx, queue, "node")
		if err != nil {
			t.Fatal(err)
		}
		urls[queue] = strings.Replace(trigger.URL, "http://hooks.example",
			"http://"+addresses.Addr, 1)
	}
	if _, err := operators.SetQueueStream(ctx, "own", api.PutQueueStream{}); err != nil {
		t.Fatal(err)
	}

	js, err := jetstream.New(s.connect(t, "admin"))
	if err != nil {
		t.Fatal(err)
	}
	shared, err := js.Stream(ctx, stream.ExecutionsName)
	if err != nil {
		t.Fatal(err)
	}
	config := shared.CachedInfo().Config
	config.MaxBytes = 1 << 16
	if _, err := js.UpdateStream(ctx, config); err != nil {
		t.Fatal(err)
	}
	post := func(queue, body string) deliver.Answer {
		t.Helper()
		a, err := deliver.Post(ctx, http.DefaultClient, urls[queue], nil, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	for n := 0; post("shared", strings.Repeat("x", 20_000)).Status == http.StatusOK; n++ {
		if n == 10 {
			t.Fatal("the shared stream does not get full")
		}
	}
	if a := post("own", "{}"); a.Status != http.StatusOK {
		t.Errorf("a queue with its own stream: %+v", a)
	}
	var reasons string
	if within(4*time.Second, func() bool { // /readyz may lag behind by 3 s
		response, err := http.Get("http://" + addresses.OpsAddr + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		text, _ := io.ReadAll(response.Body)
		reasons = string(text)
		return response.StatusCode != http.StatusOK && strings.Contains(reasons, "stream")
	}) {
		t.Errorf("with a full shared stream, the ingress is not ready: %s", reasons)
	}
	if a := post("shared", strings.Repeat("x", 20_000)); a.Code != "storage_full" {
		t.Errorf("the shared stream is not full: %+v", a)
	}
}
