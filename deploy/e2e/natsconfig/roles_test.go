package natsconfig

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/deploy/lab/deliver"
	"github.com/hookstart/hookstart/executor"
	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/ingress"
	"github.com/hookstart/hookstart/shared/bus"
	"github.com/hookstart/hookstart/shared/embednats/freeport"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/ops/logtest"
	"github.com/hookstart/hookstart/shared/program"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/runner"
	"github.com/hookstart/hookstart/shared/stream"
)

// Every program can do its work with its own credentials, with either form of the acknowledgement
// subjects, and no program logs a missing permission.
func TestEveryRoleCanDoItsWork(t *testing.T) {
	t.Run("one server", func(t *testing.T) { work(t, startOne(t), "1", shortAcks) })
	t.Run("three servers", func(t *testing.T) { work(t, startThree(t), "3", shortAcks) })
	t.Run("one server with long acknowledgements", func(t *testing.T) {
		work(t, startSite(t, "server.conf", 1, nil, func(_ int, o *server.Options) {
			o.FeatureFlags = map[string]bool{server.FeatureFlagJsAckFormatV2: true}
		}), "1", longAcks)
	})
}

// Prefixes of the two forms of the acknowledgement subjects for messages of the account HOOKSTART.
const (
	shortAcks = "$JS.ACK."
	longAcks  = "$JS.ACK._.qKA9brpj."
)

// acknowledged starts counting the acknowledgements of all consumers. The returned function returns
// how many one consumer has received so far. Its argument is the prefix of that consumer's
// acknowledgement subjects, for example "$JS.ACK.EXECUTIONS.executor".
func acknowledged(t *testing.T, s *site) func(consumer string) int {
	t.Helper()
	var mu sync.Mutex
	counts := map[string]int{}
	if _, err := s.connect(t, "admin").Subscribe("$JS.ACK.>", func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		tokens := strings.Split(m.Subject, ".")
		counts[strings.Join(tokens[:max(0, len(tokens)-5)], ".")]++
	}); err != nil {
		t.Fatal(err)
	}
	return func(consumer string) int {
		mu.Lock()
		defer mu.Unlock()
		return counts[consumer]
	}
}

func work(t *testing.T, s *site, replicas, acks string) {
	log := listen(t)
	acknowledgements := acknowledged(t, s)
	flags := []string{
		"--addr=127.0.0.1:0", "--ops-addr=127.0.0.1:0", "--nats-url=" + s.url,
		"--nats-ca=" + secret("ca.crt"),
	}

	// Start the programs in the wrong order: the ingress and the runner must wait for the streams
	// that executors create.
	ingresses, stopIngress := runIngress(t, log, flags)
	running(t, func(ctx context.Context) error {
		nc, err := bus.Connect(ctx, bus.Options{
			URL:            s.url,
			ConnectTimeout: 10 * time.Second,
			CredsFile:      secret("runner.nk"),
			CAFile:         secret("ca.crt"),
			Log:            log.Logger,
		})
		if err != nil {
			return err
		}
		defer nc.Close()
		return runner.Run(ctx, nc, runner.Options{Group: "main"}, func(
			context.Context, runner.Execution,
		) (any, error) {
			return "ran", nil
		})
	})

	executorFlags := append(flags, "--nats-creds="+secret("executor.nk"), "--admin-token=admin",
		"--replicas="+replicas,
		"--registry-copy="+registryCopy, "--runner-groups=default/main",
		"--public-url=http://hooks.example")
	operators := runExecutor(t, log, executorFlags)
	webhooks := "http://" + (<-ingresses).Addr

	ctx := t.Context()
	_, err := operators.PutAccount(ctx, "acme", api.PutAccount{Name: "Acme", Plan: "pro"})
	if err == nil {
		_, err = operators.PutWorkflow(ctx, "wf", api.PutWorkflow{
			AccountID: "acme",
			Name:      "W",
			Triggers:  []api.PutTrigger{{NodeID: "node"}},
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	trigger, err := operators.Trigger(ctx, "wf", "node")
	if err != nil {
		t.Fatal(err)
	}
	url := strings.Replace(trigger.URL, "http://hooks.example", webhooks, 1)

	// The ingress needs permissions to publish rejections, starts and repeats, so cause one of
	// each, beginning with a rejection.
	if status, _ := post(t, url, "d1"); status != http.StatusForbidden {
		t.Errorf("an inactive workflow: %d", status)
	}
	// Once Activate has returned, the ingress has received the change through the registry's copy.
	if _, err := operators.Activate(ctx, "wf"); err != nil {
		t.Fatal(err)
	}
	status, first := post(t, url, "d1")
	if status != http.StatusOK {
		t.Fatalf("%d", status)
	}
	if _, again := post(t, url, "d1"); again != first {
		t.Errorf("the repeat got %s, the first %s", again, first)
	}
	eventually(t, "recorded as succeeded, with one repeat", func() bool {
		e, err := operators.Execution(ctx, first)
		return err == nil && e.Status == "succeeded" && e.Duplicates == 1
	})
	eventually(t, "the refusal counted", func() bool {
		refused, err := operators.Refusals(ctx, "wf", time.Time{}, apiclient.Page{})
		return err == nil && len(refused.Items) == 1 && refused.Items[0].Code == "workflow_inactive"
	})
	e, err := operators.Execution(ctx, first)
	if err != nil || string(e.Output) != `"ran"` || string(e.Input) != `{"a":1}` {
		t.Errorf("%+v, %v", e, err)
	}

	for _, consumer := range []string{
		"EXECUTIONS.executor", "PROGRESS.executor", "REPORTS.executor",
		"EXECUTIONS.runner-default-main", "KV_registry.audit",
	} {
		eventually(t, "acknowledged: "+acks+consumer, func() bool {
			return acknowledgements(acks+consumer) > 0
		})
	}

	// Executions with an order key come from another consumer, that of a lane. The runner may
	// acknowledge them, too.
	if _, err := operators.PatchTrigger(ctx, "wf", "node",
		apiclient.Patch{"orderKey": "ptr:/a"}); err != nil {
		t.Fatal(err)
	}
	_, ordered := post(t, url, "ordered")
	eventually(t, "recorded as succeeded, with an order key", func() bool {
		e, err := operators.Execution(ctx, ordered)
		return err == nil && e.Status == "succeeded"
	})
	lane := acks + stream.ExecutionsName + "." +
		stream.RunnerGroup{
			Queue: "default",
			Group: "main",
		}.LaneConsumerName(execution.LaneOf("wf", "1"))
	eventually(t, "acknowledged: "+lane, func() bool { return acknowledgements(lane) > 0 })
	if _, err := operators.PatchTrigger(ctx, "wf", "node",
		apiclient.Patch{"orderKey": nil}); err != nil {
		t.Fatal(err)
	}

	// The executor has the permission to cancel an execution: it writes to a bucket that runners
	// read. The queue is paused, so that no runner takes the execution first.
	if _, err := operators.PauseQueue(ctx, "default", time.Time{}); err != nil {
		t.Fatal(err)
	}
	_, waiting := post(t, url, "d3")
	eventually(t, "recorded as queued", func() bool {
		e, err := operators.Execution(ctx, waiting)
		return err == nil && e.Status == "queued"
	})
	if e, err := operators.CancelExecution(ctx, waiting); err != nil || e.Status != "canceled" {
		t.Errorf("a cancel of an execution that waits: %+v, %v", e, err)
	}
	if _, err := operators.ResumeQueue(ctx, "default"); err != nil {
		t.Fatal(err)
	}
	_, last := post(t, url, "d4")
	eventually(t, "recorded as succeeded, after a canceled one", func() bool {
		e, err := operators.Execution(ctx, last)
		return err == nil && e.Status == "succeeded"
	})

	// The ingress has the permissions to respond with the outcome of an execution: to a request, to
	// its repeat, and to a request whose execution is canceled meanwhile.
	if _, err := operators.PatchTrigger(ctx, "wf", "node", apiclient.Patch{
		"answer": api.Answer{WaitSeconds: 20},
	}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := postFor(t, url, "d5"); !strings.Contains(got,
			`"status":"succeeded","output":"ran"`) {
			t.Errorf("an answer that waits: %s", got)
		}
	}
	if _, err := operators.PauseQueue(ctx, "default", time.Time{}); err != nil {
		t.Fatal(err)
	}
	canceled := make(chan string, 1)
	go func() { canceled <- postFor(t, url, "d6") }()
	eventually(t, "canceled while its answer waits", func() bool {
		list, err := operators.Executions(ctx, apiclient.ExecutionFilter{
			WorkflowID: "wf",
			DeliveryID: "d6",
		}, apiclient.Page{})
		if err != nil || len(list.Items) != 1 {
			return false
		}
		_, err = operators.CancelExecution(ctx, list.Items[0].ExecutionID)
		return err == nil
	})
	if got := <-canceled; !strings.Contains(got, `"status":"canceled"`) {
		t.Errorf("the answer of a canceled execution: %s", got)
	}
	if _, err := operators.ResumeQueue(ctx, "default"); err != nil {
		t.Fatal(err)
	}

	// The queue moves to its own stream and back, and its delivery IDs move with it.
	moved := map[string]string{"d4": last} // execution IDs keyed by delivery
	for _, inOwn := range []bool{true, false} {
		if inOwn {
			_, err = operators.SetQueueStream(ctx, "default", api.PutQueueStream{})
		} else {
			err = operators.DropQueueStream(ctx, "default")
		}
		if err != nil {
			t.Fatalf("move the queue to its own stream: %t: %v", inOwn, err)
		}
		for delivery, id := range moved {
			if _, repeat := post(t, url, delivery); repeat != id {
				t.Errorf("after a move, a repeat of %s got %s", id, repeat)
			}
		}
		delivery := fmt.Sprintf("moved %t", inOwn)
		_, id := post(t, url, delivery)
		moved[delivery] = id
		eventually(t, "recorded as succeeded, after a move", func() bool {
			e, err := operators.Execution(ctx, id)
			return err == nil && e.Status == "succeeded" && string(e.Input) == `{"a":1}`
		})
	}
	for _, consumer := range []string{
		"QUEUE_default.executor", "PROGRESS_default.executor", "QUEUE_default.runner-default-main",
	} {
		eventually(t, "acknowledged: "+acks+consumer, func() bool {
			return acknowledgements(acks+consumer) > 0
		})
	}

	// An executor recreates the registry's copy after its loss, and the ingress continues without
	// intervention.
	ask(t, s.connect(t, "admin"), registryCopy+".STREAM.DELETE.KV_registry")
	eventually(t, "changes are confirmed again", func() bool {
		_, err := operators.Deactivate(ctx, "wf")
		return err == nil
	})
	if status, _ := post(t, url, "d2"); status != http.StatusForbidden {
		t.Errorf("after the copy's return, a workflow that is inactive: %d", status)
	}
	stopIngress()
	for _, line := range log.lines() {
		// With a single server, "no responders" means that an import is missing in the
		// configuration. In a cluster it may just mean that the cluster has not finished starting.
		unanswered := len(s.servers) == 1 && strings.Contains(line, "no responders")
		if unanswered || strings.Contains(line, "ermission") || strings.Contains(line, "iolation") {
			t.Error("a program lacks a permission: " + line)
		}
	}
}

// runIngress runs an ingress. The returned channel receives the ingress's addresses once it is
// ready.
func runIngress(
	t *testing.T, log *logLines, flags []string,
) (ready <-chan ingress.ListenAddresses, stop func()) {
	t.Helper()
	addresses := make(chan ingress.ListenAddresses, 1)
	config := ingress.Config{OnReady: func(l ingress.ListenAddresses) { addresses <- l }}
	config.Log = log.Logger
	parse(t, &config, append(slices.Clone(flags), "--nats-creds="+secret("ingress.nk"))...)
	return addresses, running(t, func(ctx context.Context) error {
		return ingress.Run(ctx, config)
	})
}

// runExecutor runs an executor with a separate database, and returns a client for its API.
func runExecutor(t *testing.T, log *logLines, flags []string) *apiclient.Client {
	t.Helper()
	ready := make(chan executor.ListenAddresses, 1)
	config := executor.Config{OnReady: func(l executor.ListenAddresses) { ready <- l }}
	config.Log = log.Logger
	parse(t, &config,
		append(slices.Clone(flags), "--database-url=sqlite:"+filepath.Join(t.TempDir(), "db"))...)
	running(t, func(ctx context.Context) error { return executor.Run(ctx, config) })
	return apiclient.New("http://"+(<-ready).Addr, "admin")
}

// ask sends a JetStream API request without a body. The test fails if the request does not succeed.
func ask(t *testing.T, nc *nats.Conn, subject string) {
	t.Helper()
	msg, err := nc.Request(subject, nil, 10*time.Second)
	if err != nil {
		t.Fatalf("%s: %v", subject, err)
	}
	if bytes.Contains(msg.Data, []byte(`"error"`)) {
		t.Fatalf("%s: %s", subject, msg.Data)
	}
}

// The command that raises the number of replicas also does so for the registry's copy. It works
// with an executor's credentials.
func TestReplicasOfTheCopy(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "hookstart")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", bin,
		"../../../executor/cmd/hookstart").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s := startThree(t)
	nc := s.connect(t, "executor")
	eventually(t, "leaders for all", func() bool {
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		return stream.EnsureSharedStreams(t.Context(), js, stream.DefaultSettings) == nil
	})
	makeStreams(t, nc)
	out, err := exec.CommandContext(t.Context(), bin, "admin", "replicas", "3",
		"--registry-copy="+registryCopy,
		"--nats-url="+s.url, "--nats-creds="+secret("executor.nk"),
		"--nats-ca="+secret("ca.crt")).CombinedOutput()
	if err != nil ||
		strings.Count(string(out),
			"3 of 3 replicas hold everything, 0 operations behind: done") != 7 {
		t.Fatalf("%v\n%s", err, out)
	}
	sizeByAnExecutor(t, s, nc, bin)
	feed, err := copyOf(t, nc).Stream(t.Context(), registry.Stream)
	if err != nil || feed.CachedInfo().Config.Replicas != 3 ||
		feed.CachedInfo().Config.Mirror == nil {
		t.Errorf("%v: %+v", err, feed)
	}
}

// sizeByAnExecutor runs hookstart admin size with an executor's credentials, and checks its output.
func sizeByAnExecutor(t *testing.T, s *site, nc *nats.Conn, bin string) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), stream.StartSubject("q", "wf", "node"),
		[]byte("x")); err != nil {
		t.Fatal(err)
	}
	operators := httptest.NewServer(http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(api.Size{At: time.Now(), Hours: []api.SizeHour{}})
		}))
	defer operators.Close()
	out, err := exec.CommandContext(t.Context(), bin, "admin", "size",
		"--api-url="+operators.URL, "--admin-token=admin",
		"--nats-url="+s.url, "--nats-creds="+secret("executor.nk"),
		"--nats-ca="+secret("ca.crt")).CombinedOutput()
	if err != nil || strings.Count(string(out), "(1 ID at most)") != 3 {
		t.Errorf("%v\n%s", err, out)
	}
}

// parse fills config from flags, as the programs do. The test fails if a flag is invalid.
func parse(t *testing.T, config any, flags ...string) {
	t.Helper()
	if err := program.Parse(config, flags...); err != nil {
		t.Fatal(err)
	}
}

// running runs a service until stop is called or the test ends.
func running(t *testing.T, serve func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- serve(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(stop)
	return stop
}

func post(t *testing.T, url, deliveryID string) (status int, executionID string) {
	t.Helper()
	a, err := deliver.Post(t.Context(), http.DefaultClient, url, map[string]string{
		"Content-Type": "application/json", "X-Webhook-Delivery-Id": deliveryID,
	}, strings.NewReader(`{"a":1}`))
	if err != nil {
		t.Fatal(err)
	}
	return a.Status, a.ExecutionID
}

// logLines collects the lines that programs log at warning level and above.
type logLines struct {
	*logrus.Logger

	mu  sync.Mutex
	all []string
}

func listen(t *testing.T) *logLines {
	t.Helper()
	l := &logLines{Logger: logtest.Discard()}
	l.SetLevel(logrus.WarnLevel)
	l.AddHook(l)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(strings.Join(l.lines(), "\n"))
		}
	})
	return l
}

// Levels implements logrus.Hook.
func (l *logLines) Levels() []logrus.Level { return logrus.AllLevels }

// Fire implements logrus.Hook.
func (l *logLines) Fire(e *logrus.Entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, e.Message+" "+errorOf(e))
	return nil
}

func errorOf(e *logrus.Entry) string {
	if err, ok := e.Data[logrus.ErrorKey].(error); ok {
		return err.Error()
	}
	return ""
}

func (l *logLines) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.all...)
}

// With the files that make-secrets.sh generates, a server accepts each role. The test uses a
// stand-in for the program nk.
func TestMakeSecrets(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("no openssl")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(self, filepath.Join(bin, "nk")); err != nil {
		t.Fatal(err)
	}
	// Without this, each stand-in process would take a second to exit.
	t.Setenv("GORACE", "atexit_sleep_ms=0")
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("NK", "nk")
	made := filepath.Join(t.TempDir(), "secrets")
	if out, err := exec.CommandContext(t.Context(), filepath.Join(files, "make-secrets.sh"), made,
		"nats-0", "10.1.2.3").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	env, err := os.ReadFile(filepath.Join(made, "nats.env"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(env)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		t.Setenv(name, value)
	}
	t.Setenv("NATSD_CERT", filepath.Join(made, "tls.crt"))
	t.Setenv("NATSD_KEY", filepath.Join(made, "tls.key"))
	outer := secrets
	secrets = made
	defer func() { secrets = outer }()

	s := startOne(t)
	for _, role := range roles {
		s.connect(t, role)
	}
	makeStreams(t, s.connect(t, "executor"))

	before, kept := serverCertificate(t), filesBut(t, made, "tls.crt", "tls.key")
	if out, err := exec.CommandContext(t.Context(), filepath.Join(files, "make-secrets.sh"),
		"--renew", made, "nats-0").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	after := serverCertificate(t)
	authority, err := os.ReadFile(secret("ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority)
	if _, err := after.Verify(x509.VerifyOptions{Roots: trusted, DNSName: "nats-0"}); err != nil ||
		after.SerialNumber.Cmp(before.SerialNumber) == 0 {
		t.Errorf("renewed: %v, %s after %s", err, after.SerialNumber, before.SerialNumber)
	}
	// Renewing the certificate changes no other files. The most important one is the key that seals
	// the secrets in NATS: without it, these secrets are lost.
	if now := filesBut(t, made, "tls.crt", "tls.key"); !maps.Equal(now, kept) ||
		kept["secrets.key"] == "" {
		t.Errorf("renewing the certificate changed more than it: there is %q, there was %q",
			slices.Sorted(maps.Keys(now)), slices.Sorted(maps.Keys(kept)))
	}
	s.connect(t, "ingress")

	addCopyKey(t, made)
	connectSites(t)
}

// addCopyKey generates the key with which a second site copies the streams, and adds it to the
// environment.
func addCopyKey(t *testing.T, made string) {
	t.Helper()
	kept := filesBut(t, made, "nats.env")
	add := func() ([]byte, error) {
		return exec.CommandContext(t.Context(), filepath.Join(files, "make-secrets.sh"), "--copy",
			made).CombinedOutput()
	}
	if out, err := add(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	now := filesBut(t, made, "nats.env", "copy.nk", "second-site.env")
	if !maps.Equal(now, kept) {
		t.Errorf("--copy changed more than nats.env: there is %q, there was %q",
			slices.Sorted(maps.Keys(now)), slices.Sorted(maps.Keys(kept)))
	}
	all := filesBut(t, made)
	for _, name := range []string{"copy.nk", "second-site.env"} {
		info, err := os.Stat(filepath.Join(made, name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	for line := range strings.Lines(all["nats.env"] + all["second-site.env"]) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		t.Setenv(name, value)
	}
	if out, err := add(); err == nil || !maps.Equal(filesBut(t, made), all) {
		t.Errorf("a second key was made: %s", out)
	}
}

// connectSites checks that a server with second-site.conf connects to one with first-site.conf.
func connectSites(t *testing.T) {
	t.Helper()
	port, err := freeport.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(port.Release)
	t.Setenv("NATSD_CA", secret("ca.crt"))
	t.Setenv("NATSD_CLUSTER_LISTEN", "127.0.0.1:-1")
	t.Setenv("NATSD_ROUTES", "[nats://localhost:1]")
	t.Setenv("NATSD_LEAF_LISTEN", port.Addr())
	t.Setenv("NATSD_FIRST_SITE", "[tls://"+port.Addr()+"]")
	// Use one server instead of a cluster of three.
	first := startSite(t, "first-site.conf", 1, nil, func(_ int, o *server.Options) {
		o.Cluster, o.Routes = server.ClusterOpts{}, nil
	}).servers[0]
	t.Setenv("NATSD_NAME", "second-0")
	startSite(t, "second-site.conf", 1, nil)
	eventually(t, "connection of the second site", func() bool { return first.NumLeafNodes() == 1 })
}

// filesBut returns the contents of a folder's files, keyed by name, except for the given files.
func filesBut(t *testing.T, folder string, without ...string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	contents := make(map[string]string)
	for _, entry := range entries {
		if slices.Contains(without, entry.Name()) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		contents[entry.Name()] = string(content)
	}
	return contents
}

func serverCertificate(t *testing.T) *x509.Certificate {
	t.Helper()
	content, err := os.ReadFile(secret("tls.crt"))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(content)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// postFor sends a delivery and returns the body of the response, or "" if the request fails.
func postFor(t *testing.T, url, deliveryID string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url,
		strings.NewReader(`{"a":1}`))
	if err != nil {
		t.Error(err)
		return ""
	}
	request.Header.Set("X-Webhook-Delivery-Id", deliveryID)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Error(err)
	}
	return string(text)
}
