package secondsite_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/hookstart/hookstart/executor/cmd/hookstart/internal/cli"
	"github.com/hookstart/hookstart/executor/cmd/hookstart/internal/secondsite"
	"github.com/hookstart/hookstart/shared/embednats/freeport"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/stream"
)

// files is the directory with the configuration of the NATS servers, including the sites' accounts.
const files = "../../../../../deploy/nats"

// firstLeaf and secondLeaf configure the leaf node connection as first-site.conf and
// second-site.conf do, but without TLS.
const (
	firstLeaf = `
leafnodes {
  listen: "%[1]s"
  authorization { nkey: $NATSD_COPY_NKEY, account: COPY }
}`
	secondLeaf = `
leafnodes {
  remotes: [{ urls: ["nats-leaf://%[1]s"], nkey: $NATSD_COPY_SEED, account: HOOKSTART }]
}`
)

// sites is two sites with one NATS server each: the first site, and the second site that copies it.
type sites struct {
	t      *testing.T
	folder string // holds the configuration and admin.nk
	leaf   string // address at which the first site accepts leaf node connections

	variables *strings.Replacer // replaces the variables in the configuration

	first  *server.Server
	second *server.Server
	one    jetstream.JetStream // the first site
	two    jetstream.JetStream // the second site
}

// startSites starts both sites. The first has the streams of an installation.
func startSites(t *testing.T) *sites {
	t.Helper()
	s := &sites{t: t, folder: t.TempDir()}
	var variables []string
	for _, role := range []string{"EXECUTOR", "INGRESS", "RUNNER", "ADMIN", "SYS", "COPY"} {
		pair, err := nkeys.CreateUser()
		if err != nil {
			t.Fatal(err)
		}
		seed, seedErr := pair.Seed()
		public, publicErr := pair.PublicKey()
		if seedErr != nil || publicErr != nil {
			t.Fatal(seedErr, publicErr)
		}
		variables = append(variables, "$NATSD_"+role+"_NKEY", public)
		switch role {
		case "ADMIN":
			if err := os.WriteFile(s.admin(), seed, 0o600); err != nil {
				t.Fatal(err)
			}
		case "COPY":
			variables = append(variables, "$NATSD_COPY_SEED", string(seed))
		}
	}
	s.variables = strings.NewReplacer(variables...)
	for _, name := range []string{"accounts.conf", "runner.conf", "runners.conf"} {
		content, err := os.ReadFile(filepath.Join(files, name))
		if err != nil {
			t.Fatal(err)
		}
		s.configure(name, string(content))
	}
	port, err := freeport.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(port.Release)
	s.leaf = port.Addr()
	s.first = s.start("first", fmt.Sprintf(firstLeaf, s.leaf))
	s.second = s.start("second", fmt.Sprintf(secondLeaf, s.leaf))
	s.one, s.two = s.connect(s.first), s.connect(s.second)
	s.install(s.one)
	return s
}

// admin returns the path of the file with the administrator's key.
func (s *sites) admin() string { return filepath.Join(s.folder, "admin.nk") }

// configure writes content to a configuration file with the given name, and returns its path. It
// replaces the variables in content with their values.
func (s *sites) configure(name, content string) string {
	s.t.Helper()
	path := filepath.Join(s.folder, name)
	if err := os.WriteFile(path, []byte(s.variables.Replace(content)), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// start starts a NATS server with the given name. part is appended to the configuration that both
// sites share.
func (s *sites) start(name, part string) *server.Server {
	s.t.Helper()
	options, err := server.ProcessConfigFile(s.configure(name+".conf", "server_name: "+name+`
listen: "127.0.0.1:-1"
jetstream: enabled
include accounts.conf
`+part))
	if err != nil {
		s.t.Fatal(err)
	}
	options.StoreDir, options.NoSigs, options.NoLog = s.t.TempDir(), true, true
	started, err := server.NewServer(options)
	if err != nil {
		s.t.Fatal(err)
	}
	started.Start()
	s.t.Cleanup(func() { stop(started) })
	if !started.ReadyForConnections(10 * time.Second) {
		s.t.Fatal("the server does not become ready")
	}
	return started
}

func stop(one *server.Server) {
	one.Shutdown()
	one.WaitForShutdown()
}

func url(one *server.Server) string { return "nats://" + one.Addr().String() }

// connect connects to a server with the administrator's key.
func (s *sites) connect(to *server.Server) jetstream.JetStream {
	s.t.Helper()
	key, err := nats.NkeyOptionFromSeed(s.admin())
	if err != nil {
		s.t.Fatal(err)
	}
	nc, err := nats.Connect(url(to), key)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		s.t.Fatal(err)
	}
	return js
}

// install creates the streams and buckets of an installation on the server that js is connected to.
func (s *sites) install(js jetstream.JetStream) {
	s.t.Helper()
	ctx := s.t.Context()
	for _, err := range []error{
		stream.EnsureReportsStream(ctx, js, 1),
		stream.EnsureSharedStreams(ctx, js, stream.DefaultSettings),
		stream.EnsureCancellationsBucket(ctx, js, stream.DefaultSettings),
		edit.EnsureBuckets(ctx, js, 1),
	} {
		if err != nil {
			s.t.Fatal(err)
		}
	}
}

// own gives a queue its own streams at the first site.
func (s *sites) own(queue string) {
	s.t.Helper()
	if err := stream.EnsureOwnStreams(s.t.Context(), s.one, stream.DefaultSettings, queue,
		stream.QueueStreamLimits{}); err != nil {
		s.t.Fatal(err)
	}
}

// startIn publishes a start message to the first site, with a subject in the given layout. It
// returns the message and the execution's ID.
func (s *sites) startIn(layout stream.Layout, queue, deliveryID string) (*nats.Msg, string) {
	s.t.Helper()
	id := uuid.Must(uuid.NewV7()).String()
	msg, err := layout.StartMessage(execution.Start{
		ID:         id,
		WorkflowID: "wf-" + queue,
		NodeID:     "node",
		AccountID:  "acme",
		Queue:      queue,
		Source:     execution.SourceWebhook,
		DeliveryID: deliveryID,
		AcceptedAt: time.Now(),
		Payload:    execution.Payload{Kind: execution.BodyJSON, Body: []byte(`{}`)},
	})
	if err == nil {
		_, err = s.one.PublishMsg(s.t.Context(), msg)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return msg, id
}

// end publishes a final report of the execution to the first site.
func (s *sites) end(layout stream.Layout, queue, id string) {
	s.t.Helper()
	msg, err := layout.ProgressMessage(queue, "wf-"+queue, "node", "", execution.Progress{
		ID: id, Status: execution.Succeeded, At: time.Now(),
	})
	if err == nil {
		_, err = s.one.PublishMsg(s.t.Context(), msg)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// hookstart runs `hookstart admin second-site` against the given server.
func (s *sites) hookstart(at *server.Server, args ...string) (code int, out, errors string) {
	s.t.Helper()
	var stdout, stderr bytes.Buffer
	args = append([]string{"admin", "second-site"}, args...)
	code = cli.Run(s.t.Context(), append(args, "--nats-url="+url(at), "--nats-creds="+s.admin()),
		cli.StdStreams{In: strings.NewReader(""), Out: &stdout, Err: &stderr})
	return code, stdout.String(), stderr.String()
}

// must runs a command against the second site and returns its output. It stops the test if the
// command fails.
func (s *sites) must(args ...string) string {
	s.t.Helper()
	code, out, errors := s.hookstart(s.second, args...)
	if code != 0 {
		s.t.Fatalf("%v: %d, %s%s", args, code, out, errors)
	}
	return out + errors
}

// fails runs a command against the given server. It reports an error unless the command fails with
// a message that contains text.
func (s *sites) fails(at *server.Server, text string, args ...string) {
	s.t.Helper()
	code, out, errors := s.hookstart(at, args...)
	if code != 1 || !strings.Contains(errors, text) {
		s.t.Errorf("%v: %d, %s%s; want %q", args, code, out, errors, text)
	}
}

// awaitCopied waits until the second site has all messages of the first.
func (s *sites) awaitCopied() {
	s.t.Helper()
	eventually(s.t, "copies", func() bool {
		all, err := secondsite.Site{JetStream: s.two}.MirrorStates(s.t.Context())
		return err == nil && !slices.ContainsFunc(all, func(c secondsite.MirrorState) bool {
			first, err := s.one.Stream(s.t.Context(), c.Stream)
			return err != nil || first.CachedInfo().State.LastSeq != c.LastSequence
		})
	})
}

// names returns the names of all streams at a site.
func names(t *testing.T, js jetstream.JetStream) (all []string) {
	t.Helper()
	for name := range js.StreamNames(t.Context()).Name() {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	held := false
	retry.Until(ctx, 20*time.Millisecond, func() bool {
		held = holds()
		return held
	})
	if !held {
		t.Fatalf("not in time: %s", what)
	}
}

// After a takeover, the second site treats a delivery as a repeat if the first site has already
// received it and the second site has mirrored it. Runners receive the start message of each
// unfinished execution once, whether the message is in the shared stream or in a queue's own
// stream.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	s := startSites(t)
	ctx := t.Context()
	s.own("orders")
	layouts := map[string]stream.Layout{"default": {}, "orders": {Own: true}}
	starts := map[string][]*nats.Msg{}
	for queue, layout := range layouts {
		for n := range 3 {
			msg, id := s.startIn(layout, queue, fmt.Sprintf("%s-%d", queue, n))
			starts[queue] = append(starts[queue], msg)
			if n == 1 {
				s.end(layout, queue, id)
			}
		}
	}

	for range 2 { // copy can be repeated
		s.must("copy")
	}
	for _, name := range []string{stream.ExecutionsName, stream.OwnStreamName("orders")} {
		copied, err := s.two.Stream(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		config := copied.CachedInfo().Config
		if config.Mirror == nil || len(config.Subjects) > 0 ||
			config.Duplicates != stream.DefaultSettings.DedupWindow ||
			config.MaxAge != stream.DefaultSettings.MaxAge {
			t.Errorf("the copy of %s: %+v", name, config)
		}
	}
	s.awaitCopied()
	var status struct {
		Items []struct {
			Stream  string
			Missing int
			Last    uint64  `json:"lastSequence"`
			Heard   float64 `json:"heardSecondsAgo"`
		}
	}
	if err := json.Unmarshal([]byte(s.must("status", "-o", "json")), &status); err != nil {
		t.Fatal(err)
	}
	last := map[string]uint64{}
	for _, item := range status.Items {
		last[item.Stream] = item.Last
		if item.Missing != 0 || item.Heard < 0 {
			t.Errorf("status: %+v", item)
		}
	}
	if last[stream.ExecutionsName] != 3 || last[stream.OwnStreamName("orders")] != 3 ||
		last[stream.OwnProgressStreamName("orders")] != 1 || len(last) != 8 {
		t.Errorf("status: %v", last)
	}

	stop(s.first)
	takeOver := []string{"take-over", "--runner-groups=default/main,orders/main", "--yes"}
	for range 2 { // take-over can be repeated
		if out := s.must(takeOver...); !strings.Contains(out, "given 4 executions") {
			t.Errorf("take-over: %s", out)
		}
	}
	for queue, layout := range layouts {
		info, err := s.two.Stream(ctx, layout.StreamName(queue))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.CachedInfo(); got.State.LastSeq != 5 || got.Config.Mirror != nil ||
			len(got.Config.Subjects) == 0 {
			t.Errorf("%s after the takeover: %+v", layout.StreamName(queue), got)
		}
		var given []string
		group := stream.RunnerGroup{Queue: queue, Group: "main"}
		consumer, err := info.Consumer(ctx, group.ConsumerName())
		if err != nil {
			t.Fatal(err)
		}
		batch, err := consumer.FetchNoWait(10)
		if err != nil {
			t.Fatal(err)
		}
		for msg := range batch.Messages() {
			given = append(given, msg.Headers().Get(stream.HeaderExecutionID))
		}
		want := []string{
			starts[queue][0].Header.Get(stream.HeaderExecutionID),
			starts[queue][2].Header.Get(stream.HeaderExecutionID),
		}
		if !slices.Equal(given, want) {
			t.Errorf("runners of %s are given %v, want %v", queue, given, want)
		}
		for _, msg := range starts[queue] {
			ack, err := s.two.PublishMsg(ctx, msg)
			if err != nil || !ack.Duplicate {
				t.Errorf("a repeat in %s: %+v, %v", layout.StreamName(queue), ack, err)
			}
		}
	}
	if out := s.must("status"); !strings.Contains(out, "no copy any more") {
		t.Errorf("status after the takeover: %s", out)
	}
}

// On a site that is not a second site, "status", "take-over" and "copy" fail and change nothing.
func TestRefusals(t *testing.T) {
	t.Parallel()
	s := startSites(t)
	ctx := t.Context()
	takeOver := []string{"take-over", "--runner-groups=default/main", "--yes"}
	for _, args := range [][]string{{"status"}, takeOver} {
		s.fails(s.second, "is not copied to this site", args...)
		// The first site is not a copy of any other site.
		s.fails(s.first, "is not copied to this site", args...)
	}
	one, err := s.one.Stream(ctx, stream.ExecutionsName)
	if err != nil {
		t.Fatal(err)
	}
	if got := one.CachedInfo(); got.State.Consumers != 0 || got.State.LastSeq != 0 {
		t.Errorf("a take-over that was refused has changed %s: %+v", stream.ExecutionsName,
			got.State)
	}
	if got := names(t, s.two); len(got) > 0 {
		t.Errorf("the second site has %v", got)
	}
	s.fails(s.first, "the first site cannot be reached", "copy", "--wait=500ms")
	s.fails(s.second, "what the first site accepts from now on will be lost", takeOver[:2]...)

	s.install(s.two)
	s.fails(s.second, "is no copy: the second site has taken over, or is an installation", "copy")
	two, err := s.two.Stream(ctx, stream.ExecutionsName)
	if err != nil || two.CachedInfo().Config.Mirror != nil {
		t.Errorf("an installation of its own became a copy: %v", err)
	}
}

// Queues get their own streams at the first site after "copy" was run at the second site. "status"
// reports that these streams are not copied until "copy" is run again. After the streams have been
// deleted at the first site, "copy" deletes the copies that are empty and keeps those that contain
// messages.
func TestOwnStreams(t *testing.T) {
	t.Parallel()
	s := startSites(t)
	s.must("copy")
	s.own("orders")
	s.own("mails")
	s.fails(s.second, "not copied: PROGRESS_mails, PROGRESS_orders, QUEUE_mails, QUEUE_orders",
		"status")
	const uncopied = "hookstart_second_site_uncopied_streams "
	if out := s.must("status", "--metrics"); !strings.Contains(out, uncopied+"4\n") {
		t.Errorf("metrics: %s", out)
	}
	s.must("copy")
	s.must("status")
	if out := s.must("status", "--metrics"); !strings.Contains(out, uncopied+"0\n") ||
		strings.Contains(out, "_heard_timestamp_seconds{stream=\"QUEUE_mails\"} 0\n") ||
		!strings.Contains(out, "_stored_timestamp_seconds{stream=\"QUEUE_mails\"} 0\n") ||
		!strings.Contains(out, "_missing_messages{stream=\"QUEUE_mails\"} 0\n") {
		t.Errorf("metrics: %s", out)
	}

	s.startIn(stream.Layout{Own: true}, "mails", "d-1")
	s.awaitCopied()
	for _, queue := range []string{"orders", "mails"} {
		if err := stream.DeleteOwnStreams(t.Context(), s.one, queue); err != nil {
			t.Fatal(err)
		}
	}
	s.must("copy")
	got := names(t, s.two)
	if slices.Contains(got, "QUEUE_orders") || slices.Contains(got, "PROGRESS_orders") {
		t.Errorf("a stream that is empty, and deleted at the first site, is still copied: %v", got)
	}
	if !slices.Contains(got, "QUEUE_mails") {
		t.Errorf("the copy of a stream that was lost with a message in it is deleted: %v", got)
	}
}

// While the first site is away, "status" reports that nothing is copied any more, and when the
// second site last had contact with the first site.
func TestStandsStill(t *testing.T) {
	t.Parallel()
	s := startSites(t)
	s.startIn(stream.Layout{}, "default", "d-1")
	s.must("copy")
	s.awaitCopied()
	s.must("status")
	stop(s.first)
	site := secondsite.Site{JetStream: s.two}
	eventually(t, "a copy that stands still", func() bool {
		all, err := site.MirrorStates(t.Context())
		return err == nil && !slices.ContainsFunc(all, func(c secondsite.MirrorState) bool {
			return !c.IsStalled(time.Second)
		})
	})
	s.fails(s.second, "nothing is copied of KV_registry, KV_registry_secrets, REPORTS, "+
		"KV_cancellations, PROGRESS, EXECUTIONS", "status", "--max-behind=1s")
	s.fails(s.second, "the first site was heard last ", "status", "--max-behind=1s")
	heard := heardIn(t, s.must("status", "--metrics"))
	eventually(t, "another second", func() bool { return time.Since(heard) > 2*time.Second })
	// The metric is the time of the last contact, not its age, so it stays the same while the first
	// site is away.
	if again := heardIn(t, s.must("status", "--metrics")); again.Sub(heard).Abs() > time.Second {
		t.Errorf("the first site was heard at %s and at %s, while it was away", heard, again)
	}
	s.must("status", "--max-behind=1h")
}

// heardIn returns the time of the last contact with the first site, as stated in metrics for the
// stream EXECUTIONS.
func heardIn(t *testing.T, metrics string) time.Time {
	t.Helper()
	_, rest, _ := strings.Cut(metrics,
		"hookstart_second_site_heard_timestamp_seconds{stream=\"EXECUTIONS\"} ")
	value, _, _ := strings.Cut(rest, "\n")
	seconds, err := strconv.ParseFloat(value, 64)
	if err != nil || seconds == 0 {
		t.Fatalf("%v: %s", err, metrics)
	}
	return time.UnixMilli(int64(seconds * 1000))
}

func TestFallsBehind(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		copied secondsite.MirrorState
		want   bool
	}{
		"quiet": {secondsite.MirrorState{LastStoredAt: now.Add(-time.Hour)}, false},
		"current": {
			secondsite.MirrorState{LastStoredAt: now.Add(-time.Second), MissingMessages: 9},
			false,
		},
		"behind": {
			secondsite.MirrorState{LastStoredAt: now.Add(-time.Hour), MissingMessages: 9},
			true,
		},
		"promoted": {
			secondsite.MirrorState{
				LastStoredAt: now.Add(-time.Hour), MissingMessages: 9,
				Promoted: true,
			}, false,
		},
	} {
		if got := c.copied.IsLagging(now, time.Minute); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
