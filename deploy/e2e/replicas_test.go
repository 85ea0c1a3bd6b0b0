package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/stream"
)

// A command changes a running installation from one replica to three, so that the installation
// survives the loss of a server. Starting a program never raises the number of replicas by itself.
func TestReplicasAreRaisedByACommand(t *testing.T) {
	t.Parallel()
	bin := buildCommandLine(t)
	cluster := natstest.StartCluster(t, 3)
	database := "--database-url=sqlite:" + filepath.Join(t.TempDir(), "executions.db")
	executor := func(replicas string) (*process, *apiclient.Client) {
		p := launch(t, "executor", "--addr=127.0.0.1:0", "--ops-addr=127.0.0.1:0",
			"--nats-url="+cluster.URLs(), "--replicas="+replicas,
			database, "--admin-token="+adminToken)
		return p,
			apiclient.New("http://"+p.Await(`"addr":"([^"]+)".*executor is ready`), adminToken)
	}
	js, err := jetstream.New(cluster.Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	replicas := func() map[string]int {
		counts := map[string]int{}
		for _, name := range append([]string{
			stream.ExecutionsName, stream.ProgressName, stream.ReportsName,
			stream.CancellationsStream,
		}, registry.Streams()...) {
			s, err := js.Stream(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			counts[name] = s.CachedInfo().Config.Replicas
		}
		return counts
	}

	first, _ := executor("1")
	first.Terminate()
	running, client := executor("3")
	for name, n := range replicas() {
		if n != 1 {
			t.Errorf("a start gave %s %d replicas", name, n)
		}
	}
	makeWorkflow(t, client, "before")

	output, err := exec.CommandContext(t.Context(), filepath.Join(bin, "hookstart"), "admin",
		"replicas", "3",
		"--nats-url", cluster.URLs()).CombinedOutput()
	if err != nil ||
		strings.Count(string(output),
			"3 of 3 replicas hold everything, 0 operations behind: done") != 6 {
		t.Fatalf("%v\n%s", err, output)
	}
	for name, n := range replicas() {
		if n != 3 {
			t.Errorf("%s has %d replicas", name, n)
		}
	}
	cluster.Stop(cluster.Leader(registry.Stream))
	cluster.Leader(registry.Stream) // waits for the next leader
	if w, err := client.Workflow(t.Context(), "before"); err != nil || !w.Active {
		t.Errorf("%+v, %v", w, err)
	}
	running.Terminate()
}

// Commands change the maximum age, the deduplication window and the size of the stream while
// everything runs. They refuse a window that is longer than the maximum age. Afterwards an executor
// refuses to start with the old settings, and starts with the new ones.
func TestStreamSettingsAreChangedByACommand(t *testing.T) {
	t.Parallel()
	bin := filepath.Join(buildCommandLine(t), "hookstart")
	server := natstest.Start(t)
	database := filepath.Join(t.TempDir(), "executions.db")
	executor := func(flags ...string) *process {
		return launch(t, "executor", append([]string{
			"--addr=127.0.0.1:0", "--ops-addr=127.0.0.1:0", "--nats-url=" + server.URL(),
			"--database-url=sqlite:" + database, "--admin-token=" + adminToken,
		}, flags...)...)
	}
	change := func(args ...string) (output string, failed bool) {
		out, err := exec.CommandContext(t.Context(), bin,
			append([]string{"admin", "stream", "--nats-url", server.URL()},
				args...)...).CombinedOutput()
		return string(out), err != nil
	}
	running := executor()
	running.Await(`(executor is ready)`)
	if out, failed := change(); failed ||
		!strings.Contains(out, "Delivery IDs are remembered  24h0m0s") {
		t.Errorf("%s", out)
	}
	if out, failed := change("--dedup-window", "200h"); !failed ||
		!strings.Contains(out, "must not be longer than the stream's age") {
		t.Errorf("a window longer than the age: %s", out)
	}
	if out, failed := change("--max-age", "720h", "--dedup-window", "72h", "--max-bytes",
		"1000000000", "-o", "json"); failed ||
		!strings.Contains(out, `"dedupWindowSeconds":259200`) {
		t.Errorf("%s", out)
	}
	running.Terminate()
	refused := executor()
	refused.Await(`(change age, size and dedup window with .hookstart admin stream.)`)
	again := executor("--stream-max-age=720h", "--dedup-window=72h",
		"--stream-max-bytes=1000000000")
	again.Await(`(executor is ready)`)

	js, err := jetstream.New(server.Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{stream.ExecutionsName, stream.ProgressName} {
		s, err := js.Stream(t.Context(), name)
		if err != nil || s.CachedInfo().Config.MaxAge != 720*time.Hour {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
	again.Terminate()
}
