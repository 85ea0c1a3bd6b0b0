package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/pgtest"
	"github.com/hookstart/hookstart/shared/child"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/stream"
)

// outage is a temporary failure of a service or a connection that a program depends on.
type outage struct {
	what string
	away func()
	back func() // ends the outage; nil if it ends by itself
	// says maps the names of programs to the beginning of the line that their /readyz must contain
	// during the outage. All other programs stay ready.
	says map[string]string
}

// During an outage, each program's /readyz names what is missing. The program becomes ready again
// after the outage. The test logs the responses and times as a table.
func TestReadinessSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	server := natstest.StartProcess(t)
	o := newObserved(t, server.URL(), "")
	nc := server.Connect(t, nats.MaxReconnects(-1))
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	bound := func(bytes int64) {
		t.Helper()
		s, err := js.Stream(ctx, stream.ExecutionsName)
		check(err)
		config := s.CachedInfo().Config
		config.MaxBytes = bytes
		_, err = js.UpdateStream(ctx, config)
		check(err)
	}
	o.table([]outage{
		{"the stream EXECUTIONS is deleted", func() {
			check(js.DeleteStream(ctx, stream.ExecutionsName))
		}, nil, map[string]string{
			"executor": "executor streams: the stream EXECUTIONS was not there; it was made " +
				"anew, empty",
		}},
		{"the stream PROGRESS is deleted", func() {
			check(js.DeleteStream(ctx, stream.ProgressName))
		}, nil, map[string]string{
			"executor": "executor streams: the stream PROGRESS was not there",
		}},
		{"the stream REPORTS is deleted", func() {
			check(js.DeleteStream(ctx, stream.ReportsName))
		}, nil, map[string]string{
			"executor": "executor streams: the stream REPORTS was not there",
		}},
		{"the stream is full", func() { bound(100) }, func() { bound(-1) }, map[string]string{
			"ingress": "ingress stream: the stream EXECUTIONS is full: it holds 0 of 100 bytes",
		}},
		{"NATS is stopped", server.Kill, server.Restart, map[string]string{
			"ingress":  "ingress NATS: there is no connection to NATS",
			"executor": "executor NATS: there is no connection to NATS",
		}},
		{"NATS hangs", server.Pause, server.Resume, map[string]string{
			"ingress":  "ingress registry: its present state has not been known",
			"executor": "executor NATS: ",
		}},
	})
}

func TestReadinessSaysThatTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	database := pgtest.StartServer(t)
	o := newObserved(t, natstest.Start(t).URL(), database.URL())
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	o.table([]outage{{
		"the database is stopped",
		func() { check(database.Kill()) }, func() { check(database.Restart(t.Context())) },
		map[string]string{"executor": "executor database: "},
	}})
}

// If the ingress and the executor run in one process, its /readyz names the service that is not
// ready.
func TestReadinessOfAllInOneProcess(t *testing.T) {
	t.Parallel()
	l := launchLocal(t, t.TempDir())
	nc, err := nats.Connect(l.nats)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	o := &observed{t: t, ops: map[string]string{"hookstart-local": l.ops}}
	o.table([]outage{{"the stream EXECUTIONS is deleted", func() {
		if err := js.DeleteStream(t.Context(), stream.ExecutionsName); err != nil {
			t.Fatal(err)
		}
	}, nil, map[string]string{
		"hookstart-local": "executor streams: the stream EXECUTIONS was not there",
	}}})
}

// observed holds the programs whose /readyz a test observes.
type observed struct {
	t   *testing.T
	ops map[string]string // URLs of the ops listeners, keyed by program
}

func newObserved(t *testing.T, natsURL, databaseURL string) *observed {
	t.Helper()
	if databaseURL == "" {
		databaseURL = "sqlite:" + t.TempDir() + "/executions.db"
	}
	executor := launch(t, "executor", "--addr=127.0.0.1:0", "--ops-addr=127.0.0.1:0",
		"--nats-url="+natsURL,
		"--database-url="+databaseURL, "--admin-token="+adminToken)
	ingress := launch(t, "ingress", "--addr=127.0.0.1:0", "--ops-addr=127.0.0.1:0",
		"--nats-url="+natsURL)
	return &observed{t: t, ops: map[string]string{
		"executor": "http://" + executor.Await(`executor is ready.*"ops_addr":"([^"]+)"`),
		"ingress":  "http://" + ingress.Await(`ingress is ready.*"ops_addr":"([^"]+)"`),
	}}
}

// table causes one outage after another, waits for the expected responses, and logs them as a
// table.
func (o *observed) table(outages []outage) {
	o.t.Helper()
	var rows strings.Builder
	fmt.Fprintf(&rows,
		"\n| taken away | program | after | `/readyz` says | ready again after "+
			"|\n|---|---|---|---|---|\n")
	for _, one := range outages {
		for program := range o.ops {
			o.await(program, "ready")
		}
		type row struct {
			after time.Duration
			text  string
		}
		said := map[string]row{}
		began := time.Now()
		one.away()
		for program, want := range one.says {
			text := o.await(program, want)
			said[program] = row{time.Since(began), text}
		}
		if one.back != nil {
			one.back()
		}
		again := time.Now()
		for program, r := range said {
			o.await(program, "ready")
			back := fmt.Sprintf("%.1f s", time.Since(again).Seconds())
			fmt.Fprintf(&rows, "| %s | %s | %.1f s | %s | %s |\n", one.what, program,
				r.after.Seconds(), strings.ReplaceAll(r.text, "\n", "; "), back)
		}
	}
	o.t.Log(rows.String())
}

// await waits until the response of a program's /readyz contains a line that begins with the given
// text, and returns the whole response.
func (o *observed) await(program, line string) string {
	o.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(30 * time.Second)
	for {
		text := o.readyz(program)
		for one := range strings.Lines(text) {
			if strings.HasPrefix(one, line) {
				return strings.TrimSpace(text)
			}
		}
		select {
		case <-tick.C:
		case <-timeout:
			o.t.Fatalf("/readyz of the %s says %q, not %q", program, text, line)
		}
	}
}

func (o *observed) readyz(program string) string {
	o.t.Helper()
	status, text, err := child.HTTPGet(o.t.Context(), o.ops[program]+"/readyz")
	if err != nil {
		o.t.Fatal(err)
	}
	if (text == "ready") != (status == http.StatusOK) {
		o.t.Errorf("%d with %q", status, text)
	}
	return text
}
