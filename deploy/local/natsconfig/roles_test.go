package natsconfig

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/executor"
	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/executor/apiclient"
	"github.com/hookstart/hookstart/ingress"
	"github.com/hookstart/hookstart/shared/bus"
	"github.com/hookstart/hookstart/shared/runner"
)

// Every program does its work with its own credentials, and not once meets a permission
// that it lacks.
func TestEveryRoleCanDoItsWork(t *testing.T) {
	t.Run("one server", func(t *testing.T) { work(t, startOne(t), "1") })
	t.Run("three servers", func(t *testing.T) { work(t, startThree(t), "3") })
}

func work(t *testing.T, s *site, replicas string) {
	log := listen(t)
	flags := []string{"--addr=127.0.0.1:0", "--ops-addr=127.0.0.1:0", "--nats-url=" + s.url, "--nats-ca=" + secret("ca.crt")}

	executors := make(chan executor.Listening, 1)
	executorConfig := executor.Config{Log: log.Logger, OnReady: func(l executor.Listening) { executors <- l }}
	parse(t, &executorConfig, append(flags, "--nats-creds="+secret("executor.nk"), "--admin-token=admin", "--replicas="+replicas,
		"--database-url=sqlite:"+filepath.Join(t.TempDir(), "db"), "--public-url=http://hooks.example")...)
	running(t, func(ctx context.Context) error { return executor.Run(ctx, executorConfig) })
	operators := apiclient.New("http://"+(<-executors).Addr, "admin")

	setUp(t, s.connect(t, "admin"), len(s.servers))

	ingresses := make(chan ingress.Listening, 1)
	ingressConfig := ingress.Config{Log: log.Logger, OnReady: func(l ingress.Listening) { ingresses <- l }}
	parse(t, &ingressConfig, append(flags, "--nats-creds="+secret("ingress.nk"))...)
	stopIngress := running(t, func(ctx context.Context) error { return ingress.Run(ctx, ingressConfig) })
	webhooks := "http://" + (<-ingresses).Addr

	running(t, func(ctx context.Context) error {
		nc, err := bus.Connect(ctx, bus.Options{
			URL: s.url, Timeout: 10 * time.Second, CredsFile: secret("runner.nk"), CAFile: secret("ca.crt"), Log: log.Logger,
		})
		if err != nil {
			return err
		}
		defer nc.Close()
		return runner.Run(ctx, nc, runner.Options{Group: "main"}, func(context.Context, runner.Execution) (any, error) { return "ran", nil })
	})

	ctx := t.Context()
	_, err := operators.PutAccount(ctx, "acme", api.PutAccount{Name: "Acme", Plan: "pro"})
	if err == nil {
		_, err = operators.PutWorkflow(ctx, "wf", api.PutWorkflow{AccountID: "acme", Name: "W", Triggers: []api.PutTrigger{{NodeID: "node"}}})
	}
	if err != nil {
		t.Fatal(err)
	}
	trigger, err := operators.Trigger(ctx, "wf", "node")
	if err != nil {
		t.Fatal(err)
	}
	url := strings.Replace(trigger.URL, "http://hooks.example", webhooks, 1)

	// A rejection, then a start, then a repeat: everything that an ingress publishes.
	if status, _ := post(t, url, "d1"); status != http.StatusForbidden {
		t.Errorf("an inactive workflow: %d", status)
	}
	// When Activate has returned, the ingress has the change, by way of the copy.
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
	e, err := operators.Execution(ctx, first)
	if err != nil || string(e.Output) != `"ran"` || string(e.Input) != `{"a":1}` {
		t.Errorf("%+v, %v", e, err)
	}
	stopIngress()
	for _, line := range log.lines() {
		// A cluster that has just started may have nobody to answer yet; one server always has, unless
		// an import is missing.
		unanswered := len(s.servers) == 1 && strings.Contains(line, "no responders")
		if unanswered || strings.Contains(line, "ermission") || strings.Contains(line, "iolation") {
			t.Error("a program lacks a permission: " + line)
		}
	}
}

// parse fills a config from flags, as the program does.
func parse(t *testing.T, config any, flags ...string) {
	t.Helper()
	parser, err := kong.New(config)
	if err == nil {
		_, err = parser.Parse(flags)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// running runs a service until stop, or the end of the test.
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
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(`{"a":1}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Webhook-Delivery-Id", deliveryID)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var answer struct {
		ExecutionID string `json:"executionId"`
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, answer.ExecutionID
}

// logLines keeps what programs log from warnings up.
type logLines struct {
	*logrus.Logger

	mu  sync.Mutex
	all []string
}

func listen(t *testing.T) *logLines {
	t.Helper()
	l := &logLines{Logger: quiet()}
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
	if err, is := e.Data[logrus.ErrorKey].(error); is {
		return err.Error()
	}
	return ""
}

func (l *logLines) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.all...)
}

// The two scripts work, as far as a stand-in for nats and nk can show it.
func TestScripts(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("no openssl")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	for _, name := range []string{"nats", "nk"} {
		if err := os.Symlink(self, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GORACE", "atexit_sleep_ms=0") // else each of the stand-ins takes a second to end
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	sh := func(script string, args ...string) {
		t.Helper()
		if out, err := exec.Command(filepath.Join(files, script), args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", script, err, out)
		}
	}

	made := filepath.Join(t.TempDir(), "secrets")
	t.Setenv("NK", "nk")
	sh("make-secrets.sh", made, "nats-0", "10.1.2.3")
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
	makeStreams(t, s.connect(t, "executor"))
	t.Setenv("NATS_URL", s.url)
	t.Setenv("NATS_NKEY", secret("admin.nk"))
	t.Setenv("NATS_CA", secret("ca.crt"))
	t.Setenv("HOOKSTART_RUNNERS", "default/main gpu/big")
	sh("setup.sh")
	sh("setup.sh") // a second time it finds everything
	admin := s.connect(t, "admin")
	ask(t, admin, "FEED.API.STREAM.INFO.KV_registry", "")
	if info := ask(t, admin, "$JS.API.CONSUMER.INFO.EXECUTIONS.runner-gpu-big", ""); !strings.Contains(string(info), `"executions.start.gpu.\u003e"`) {
		t.Errorf("%s", info)
	}
}
