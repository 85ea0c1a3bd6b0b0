package natsconfig

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/embednats/freeport"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/runner"
	"github.com/hookstart/hookstart/shared/stream"
)

// documented is a cluster that runs on a copy of the documented configuration files. The servers
// read all settings from these files and from the environment. A test can change the files and make
// the servers reload them, as an operator would.
type documented struct {
	*site
	folder string
	enter  func(i int) // sets the environment of the ith server
}

// startDocumented starts the cluster. further holds additional lines, which it appends to
// node.conf.
func startDocumented(t *testing.T, further string) *documented {
	t.Helper()
	d := &documented{site: &site{}, folder: t.TempDir()}
	for _, name := range []string{
		"cluster.conf", "node.conf", "accounts.conf", "runner.conf", "runners.conf",
	} {
		content, err := os.ReadFile(filepath.Join(files, name))
		if name == "node.conf" {
			content = append(content, further...)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(d.folder, name), content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	reserve := func() *freeport.Port {
		port, err := freeport.Reserve()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(port.Release)
		return port
	}
	var routes, urls []string
	var cluster, clients, monitors, stores []string
	for range 3 {
		port, client := reserve(), reserve()
		routes = append(routes, "nats://localhost:"+strconv.Itoa(port.Number))
		urls = append(urls, "tls://"+client.Addr())
		cluster, clients, monitors, stores = append(cluster, port.Addr()),
			append(clients, client.Addr()), append(monitors, reserve().Addr()),
			append(stores, t.TempDir())
	}
	d.url = strings.Join(urls, ",")
	t.Setenv("NATSD_ROUTES", "["+strings.Join(routes, ", ")+"]")
	t.Setenv("NATSD_SYNC", "120s")
	d.enter = func(i int) {
		t.Setenv("NATSD_NAME", "nats-"+strconv.Itoa(i))
		t.Setenv("NATSD_CLUSTER_LISTEN", cluster[i])
		t.Setenv("NATSD_LISTEN", clients[i])
		t.Setenv("NATSD_MONITOR", monitors[i])
		t.Setenv("NATSD_STORE", stores[i])
	}
	for i := range 3 {
		d.enter(i)
		options, err := server.ProcessConfigFile(filepath.Join(d.folder, "cluster.conf"))
		if err != nil {
			t.Fatal(err)
		}
		if options.SyncInterval != 2*time.Minute {
			t.Errorf("NATSD_SYNC=120s is %s", options.SyncInterval)
		}
		options.NoSigs, options.NoLog = true, true
		one, err := server.NewServer(options)
		if err != nil {
			t.Fatal(err)
		}
		one.Start()
		t.Cleanup(func() {
			one.Shutdown()
			one.WaitForShutdown()
		})
		d.servers = append(d.servers, one)
		if !one.ReadyForConnections(10 * time.Second) {
			t.Fatal("the server does not become ready")
		}
	}
	eventually(t, "a cluster of three", func() bool {
		for _, one := range d.servers {
			if one.JetStreamIsLeader() {
				return len(one.JetStreamClusterPeers()) == 3
			}
		}
		return false
	})
	return d
}

// reload makes each server reload its configuration, like nats-server --signal reload.
func (d *documented) reload(t *testing.T) {
	t.Helper()
	for i, one := range d.servers {
		d.enter(i)
		if err := one.Reload(); err != nil {
			t.Fatalf("reload nats-%d: %v", i, err)
		}
	}
}

// The systemd service of NATS needs only the settings in its example environment file and the
// public keys to start.
func TestTheExampleOfSystemdIsWhole(t *testing.T) {
	content, err := os.ReadFile("../../systemd/nats.env.example")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"NAME", "LISTEN", "MONITOR", "STORE", "SYNC", "CERT", "KEY", "CA", "ROUTES",
	} {
		t.Setenv("NATSD_"+name, "") // makes the test restore the variable at its end
		if err := os.Unsetenv("NATSD_" + name); err != nil {
			t.Fatal(err)
		}
	}
	for line := range strings.Lines(string(content)) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if ok && !strings.HasPrefix(line, "#") {
			t.Setenv(name, value)
		}
	}
	t.Setenv("NATSD_CERT", secret("tls.crt")) // in production, systemd sets both paths
	t.Setenv("NATSD_KEY", secret("tls.key"))
	options, err := server.ProcessConfigFile(filepath.Join(files, "server.conf"))
	if err != nil || !options.SyncAlways || options.StoreDir != "/var/lib/hookstart-nats" ||
		options.Port != 4222 {
		t.Errorf("%+v, %v", options, err)
	}
}

// The steps in the section "Another group of runners" of deploy/nats/README.md work while three
// servers run. The test adds two groups. Each runs its own executions, and a runner that uses the
// key of the other group does not become ready.
func TestAGroupIsAddedToARunningCluster(t *testing.T) {
	t.Run("short acknowledgements", func(t *testing.T) {
		addGroups(t, startDocumented(t, ""), shortAcks)
	})
	t.Run("long acknowledgements", func(t *testing.T) {
		addGroups(t, startDocumented(t, "\nfeature_flags { js_ack_fc_v2: true }\n"), longAcks)
	})
}

func addGroups(t *testing.T, d *documented, acks string) {
	acknowledgements := acknowledged(t, d.site)
	owner, err := jetstream.New(d.connect(t, "executor"))
	if err != nil {
		t.Fatal(err)
	}
	settings := stream.DefaultSettings
	settings.Replicas = 3
	eventually(t, "the streams", func() bool {
		return stream.EnsureSharedStreams(t.Context(), owner, settings) == nil
	})

	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(self, filepath.Join(bin, "nk")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GORACE", "atexit_sleep_ms=0")
	add := func(queue, group string) (output string, err error) {
		cmd := exec.CommandContext(t.Context(), filepath.Join(files, "add-runners.sh"), secrets,
			queue, group)
		cmd.Env = append(os.Environ(), "NK="+filepath.Join(bin, "nk"),
			"RUNNERS="+filepath.Join(d.folder, "runners.conf"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, queue := range []string{"builds", "mails"} {
		t.Cleanup(func() { _ = os.Remove(secret("runner-" + queue + "-main.nk")) })
		if out, err := add(queue, "main"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	for _, again := range [][2]string{
		{"builds", "main"}, {"default", "main"}, {"a b", "main"}, {"", "main"}, {
			strings.Repeat("q", 65), "main",
		},
	} {
		if out, err := add(again[0], again[1]); err == nil {
			t.Errorf("%q was added: %s", again, out)
		}
	}
	d.reload(t)
	d.reload(t)

	for _, queue := range []string{"builds", "mails"} {
		group := stream.RunnerGroup{Queue: queue, Group: "main"}
		if _, err := stream.EnsureConsumer(t.Context(), owner,
			group.ConsumerConfig(stream.RunnerAckWait)); err != nil {
			t.Fatal(err)
		}
	}
	for _, queue := range []string{"builds", "mails"} {
		nc := d.connect(t, "runner-"+queue+"-main")
		presence, err := owner.Conn().SubscribeSync("hookstart.runners." + queue + ".main.*")
		if err != nil {
			t.Fatal(err)
		}
		if !runs(t, nc, owner, queue, "main") {
			t.Errorf("the runners of %s run nothing", queue)
		}
		if _, err := presence.NextMsg(10 * time.Second); err != nil {
			t.Errorf("nobody hears that the runners of %s are there: %v", queue, err)
		}
		consumer := acks + stream.ExecutionsName + "." +
			stream.RunnerGroup{Queue: queue, Group: "main"}.ConsumerName()
		eventually(t, "acknowledged: "+consumer, func() bool {
			return acknowledgements(consumer) > 0
		})
	}
	// A runner becomes ready when it gets a response about its consumer. With another group's key
	// it gets none, because that key does not permit using this consumer.
	ready := make(chan struct{})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	err = runner.Run(ctx, d.connect(t, "runner-builds-main"),
		runner.Options{Queue: "mails", Group: "main", OnReady: func() {
			close(ready)
		}},
		func(context.Context, runner.Execution) (any, error) { return nil, nil })
	select {
	case <-ready:
		t.Errorf("a runner with another group's key is ready: %v", err)
	default:
	}
}

// runs publishes a start message for the queue through owner, and runs a runner of the group on the
// connection nc. It reports whether the runner receives the execution and can report its success
// within 20 s.
func runs(t *testing.T, nc *nats.Conn, owner jetstream.JetStream, queue, group string) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	reported := make(chan runner.Attempt, 1)
	stop := running(t, func(ctx context.Context) error {
		return runner.Run(ctx, nc,
			runner.Options{Queue: queue, Group: group, Observe: func(a runner.Attempt) {
				reported <- a
			}},
			func(context.Context, runner.Execution) (any, error) { return "ran", nil })
	})
	defer stop()
	payload, err := execution.NewPayload("application/json", []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	msg, err := stream.StartMessage(execution.Start{
		ID:         uuid.NewString(),
		WorkflowID: "wf",
		NodeID:     "node",
		AccountID:  "acme",
		Queue:      queue,
		Source:     execution.SourceRerun,
		AcceptedAt: time.Now(),
		Payload:    payload,
	})
	if err == nil {
		_, err = owner.PublishMsg(ctx, msg)
	}
	if err != nil {
		t.Fatal(err)
	}
	select {
	case a := <-reported:
		return a.Result == runner.Succeeded
	case <-ctx.Done():
		return false
	}
}

// With the key of the system account, an operator can read NATS's own reports and remove a
// permanently lost server from the cluster. The key of the admin permits neither.
func TestALostServerIsRemoved(t *testing.T) {
	s := startThree(t)
	lost := s.servers[2]
	if lost.JetStreamIsLeader() {
		lost = s.servers[1]
	}
	lost.Shutdown()
	lost.WaitForShutdown()
	sys := s.connect(t, "sys")
	inbox := sys.NewInbox()
	reports, err := sys.SubscribeSync(inbox)
	if err == nil {
		err = sys.PublishRequest("$SYS.REQ.SERVER.PING.JSZ", inbox, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reports.NextMsg(10 * time.Second); err != nil {
		t.Errorf("no report on JetStream: %v", err)
	}
	remove := func(nc *nats.Conn) bool {
		request, err := json.Marshal(map[string]string{"peer": lost.Name()})
		if err != nil {
			t.Fatal(err)
		}
		answer, err := nc.Request("$JS.API.SERVER.REMOVE", request, 5*time.Second)
		return err == nil && strings.Contains(string(answer.Data), `"success":true`)
	}
	if remove(s.connect(t, "admin")) {
		t.Error("the admin of an account removes a server")
	}
	eventually(t, "the server is removed", func() bool { return remove(sys) })
	eventually(t, "two members", func() bool {
		for _, one := range s.servers {
			if one != lost && one.JetStreamIsLeader() {
				return len(one.JetStreamClusterPeers()) == 2
			}
		}
		return false
	})
}
