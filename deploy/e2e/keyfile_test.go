package e2e

import (
	"bufio"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/registry/seal"
)

// ends runs a program that is expected to exit with code 1 at startup, and returns its output.
func ends(t *testing.T, name string, args ...string) string {
	t.Helper()
	p := launch(t, name, args...)
	select {
	case <-p.Exited():
		if p.State().ExitCode() != 1 {
			t.Errorf("%s ended with %s", name, p.State())
		}
	case <-time.After(time.Minute):
		t.Errorf("%s runs", name)
	}
	return p.Output()
}

// An ingress and an executor exit at startup if their key file opens none of the sealed secrets,
// and name the key that they need. If the file lacks only some of the keys, they run and name the
// missing ones.
func TestKeyFileThatOpensNothing(t *testing.T) {
	t.Parallel()
	keyFile := func(lines ...string) string {
		path := filepath.Join(t.TempDir(), "secrets.key")
		if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return "--secrets-key-file=" + path
	}
	id := func(line string) string { name, _, _ := strings.Cut(line, ":"); return name }
	first, second := seal.NewKeyLine(), seal.NewKeyLine()
	server, database := natstest.Start(t), "sqlite:"+filepath.Join(t.TempDir(), "executions.db")
	set := func(i *installation, workflow string) string {
		path := makeWorkflow(t, i.client, workflow)
		if _, err := i.client.PutSender(t.Context(), workflow, "node", api.PutSender{
			Preset:   "header",
			Secrets:  []string{"0123456789abcdef"},
			Settings: map[string]string{"header": "X-Secret"},
		}); err != nil {
			t.Fatal(err)
		}
		return path
	}
	i := installAt(t, server, database, 1, keyFile(first))
	lost := set(i, "lost")
	stop := func(i *installation) { i.executor.Terminate(); i.ingresses[0].Terminate() }
	stop(i)
	executor := []string{
		"--addr=127.0.0.1:0", "--ops-addr=127.0.0.1:0", "--nats-url=" + server.URL(),
		"--database-url=" + database, "--admin-token=" + adminToken,
	}
	for name, args := range map[string][]string{"executor": executor, "ingress": executor[:3]} {
		said := ends(t, name, slices.Concat(args, []string{keyFile(seal.NewKeyLine())})...)
		if !strings.Contains(said,
			"--secrets-key-file opens nothing of what is sealed: that needs the key "+id(first)) {
			t.Errorf("%s: %s", name, said)
		}
	}

	i = installAt(t, server, database, 1, keyFile(second, first))
	kept := set(i, "kept")
	stop(i)
	i = installAt(t, server, database, 1, keyFile(second))
	for _, p := range []*process{i.executor, i.ingresses[0]} {
		p.Await(`(lacks the key ` + id(first) + `)`)
	}
	for path, want := range map[string]int{
		lost: http.StatusServiceUnavailable,
		kept: http.StatusOK,
	} {
		a, err := post(t.Context(), i.urls[0]+path, map[string]string{
			"X-Secret": "0123456789abcdef",
		}, strings.NewReader(`{}`))
		if err != nil || a.Status != want {
			t.Errorf("%s: %+v, %v, want %d", path, a, err, want)
		}
	}
}

// A client that watches executions reconnects after a restart of the executor. It gets every event
// that it missed, and therefore no gap event, which would report missing events.
func TestEventsResumeThroughARestart(t *testing.T) {
	t.Parallel()
	server, database := natstest.Start(t), "sqlite:"+filepath.Join(t.TempDir(), "executions.db")
	i := installAt(t, server, database, 1)
	path := makeWorkflow(t, i.client, "orders")
	// until reads the stream of executions up to the first line that contains text. If lastID is
	// not "", the stream continues after the event with that ID. until returns everything that it
	// has read, and the ID of the last event.
	until := func(i *installation, lastID, text string) (all, id string) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet,
			i.api+"/api/v1/executions/stream", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+adminToken)
		if lastID != "" {
			request.Header.Set("Last-Event-ID", lastID)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		for lines := bufio.NewScanner(response.Body); lines.Scan(); {
			all += lines.Text() + "\n"
			if is, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
				id = is
			}
			if strings.Contains(lines.Text(), text) {
				return all, id
			}
		}
		t.Fatalf("%q did not come:\n%s", text, all)
		return all, id
	}
	_, id := until(i, "", "id: ")
	var ids []string
	for range 3 { // executions that no client watches
		a, err := post(t.Context(), i.urls[0]+path, nil, strings.NewReader(`{}`))
		if err != nil || a.Status != 200 {
			t.Fatalf("%+v, %v", a, err)
		}
		recorded(t, i.client, a.ExecutionID, func(api.ExecutionDetail) bool { return true })
		ids = append(ids, a.ExecutionID)
	}
	i.executor.Terminate()
	again := installAt(t, server, database, 0)
	again.client = apiclient.New(again.api, adminToken)
	all, _ := until(again, id, ids[2])
	if strings.Contains(all, "event: gap") || !strings.Contains(all, ids[0]) ||
		!strings.Contains(all, ids[1]) {
		t.Errorf("%v\n%s", ids, all)
	}
}
