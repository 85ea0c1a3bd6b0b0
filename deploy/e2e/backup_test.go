package e2e

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/executor/pgtest"
	"github.com/hookstart/hookstart/shared/registry/seal"
	"github.com/hookstart/hookstart/shared/runner"
)

// sizeOf returns the number of things that a test creates, such as executions: the value of the
// environment variable, which acceptance tests set, or the given default if the variable is not
// set.
func sizeOf(t *testing.T, variable string, size int) int {
	t.Helper()
	if text := os.Getenv(variable); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("%s: %v", variable, err)
		}
		return n
	}
	return size
}

// admin runs a subcommand of `hookstart admin` against an installation, and returns its output.
func (i *installation) admin(t *testing.T, bin string, args ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(bin, "hookstart"),
		append([]string{"admin"}, args...)...)
	command.Env = append(os.Environ(), "HOOKSTART_API_URL="+i.api,
		"HOOKSTART_ADMIN_TOKEN="+adminToken, "HOOKSTART_NATS_URL="+i.nats.URL(),
		"GORACE="+raceOptions)
	output, err := command.CombinedOutput()
	return string(output), err
}

// sent is a delivery with the execution ID from its response.
type sent struct {
	path, delivery, id string
}

// A backup that was taken under load is restored into an empty installation. There, the same URLs
// work, earlier deliveries are recognized, the records are the same, and at most some of the
// acknowledged executions run again.
func TestBackupUnderLoad(t *testing.T) {
	t.Parallel()
	workflows, executions := sizeOf(t, "HOOKSTART_BACKUP_WORKFLOWS", 30),
		sizeOf(t, "HOOKSTART_BACKUP_EXECUTIONS", 2_000)
	bin := buildCommandLine(t)
	from := install(t, 1)
	paths := make([]string, workflows)
	for n := range paths {
		paths[n] = makeWorkflow(t, from.client, fmt.Sprint("workflow-", n))
	}
	ran, stopRunner := from.runs(t)
	before := from.send(t, paths, "before", executions)
	repeated := before[0]
	if a, err := post(t.Context(), from.urls[0]+repeated.path, map[string]string{
		"X-Webhook-Delivery-Id": repeated.delivery,
	}, strings.NewReader(`{}`)); err != nil || !a.Deduplicated {
		t.Fatalf("%+v, %v", a, err)
	}
	recorded(t, from.client, before[len(before)-1].id, func(api.ExecutionDetail) bool {
		return true
	})
	recorded(t, from.client, repeated.id, func(e api.ExecutionDetail) bool {
		return e.Duplicates == 1
	})

	// Take the backup under load.
	loading, stopLoad := context.WithCancel(t.Context())
	var load sync.WaitGroup
	var during []sent
	load.Go(func() { during = from.sendUntil(loading, t, paths) })
	file := filepath.Join(t.TempDir(), "hookstart.backup")
	began := time.Now()
	output, err := from.admin(t, bin, "backup", file)
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	t.Logf("backup of %d workflows and %d executions: %s, %d bytes\n%s", workflows, executions,
		time.Since(began), info.Size(), output)
	stopLoad()
	load.Wait()
	stopRunner()

	t.Run("a file that is not whole is refused", func(t *testing.T) {
		refusesBrokenFiles(t, bin, from, file)
	})
	if output, err := from.admin(t, bin, "restore", file); err == nil ||
		!strings.Contains(output, "not empty") ||
		!strings.Contains(output, "nothing was restored") {
		t.Errorf("restored over itself: %v\n%s", err, output)
	}

	to := install(t, 2)
	// Start the new installation's runner before the restore, so that it is already waiting for
	// work when the restored messages arrive.
	ranAgain, stopAgain := to.runs(t)
	began = time.Now()
	if output, err = to.admin(t, bin, "restore", file); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	t.Logf("restore: %s\n%s", time.Since(began), output)
	// The installation's webhook URLs work immediately after the restore, through either ingress.
	for n, path := range paths {
		a, err := post(t.Context(), to.urls[n%2]+path, nil, strings.NewReader(`{"after":true}`))
		if err != nil || a.Status != 200 {
			t.Fatalf("workflow %d: %+v, %v", n, a, err)
		}
	}
	recognised := 0
	for n, s := range before {
		a, err := post(t.Context(), to.urls[n%2]+s.path, map[string]string{
			"X-Webhook-Delivery-Id": s.delivery,
		}, strings.NewReader(`{}`))
		if err != nil || a.Status != 200 || !a.Deduplicated || a.ExecutionID != s.id {
			t.Fatalf("%+v: %+v, %v", s, a, err)
		}
		recognised++
	}
	t.Logf("%d deliveries are recognised; %d came during the backup", recognised, len(during))

	// Each record is the same as before the backup, except that executions that had not ended may
	// now be ended by the runner of the new installation.
	for _, n := range rand.Perm(len(before))[:min(len(before), 300)] {
		was, err := from.client.Execution(t.Context(), before[n].id)
		if err != nil {
			t.Fatal(err)
		}
		is := recorded(t, to.client, before[n].id, func(e api.ExecutionDetail) bool {
			return e.Status == "succeeded"
		})
		if is.DeliveryID != was.DeliveryID || is.StreamSequence != was.StreamSequence ||
			!is.AcceptedAt.Equal(was.AcceptedAt) || string(is.Input) != string(was.Input) ||
			is.InputExpired {
			t.Errorf("\nis  %+v\nwas %+v", is, was)
		}
	}
	if got := recorded(t, to.client, repeated.id, func(e api.ExecutionDetail) bool {
		return e.Duplicates >= 2
	}); got.Duplicates != 2 {
		t.Errorf("%d duplicates", got.Duplicates)
	}
	if a, b := from.accepted(t, before), to.accepted(t, before); !maps.Equal(a, b) {
		t.Errorf("the records differ: %d and %d", len(a), len(b))
	}
	stopAgain()
	again := 0
	for _, s := range before {
		_, first := ran.Load(s.id)
		if _, second := ranAgain.Load(s.id); first && second {
			again++
		}
	}
	// For acknowledgements, a backup contains only the position in the stream up to which all
	// executions are acknowledged. Executions after this position may run again, even if they have
	// ended. On a busy machine these may be many, so the test accepts up to three quarters of the
	// executions.
	if again > len(before)*3/4 {
		t.Errorf("%d executions ran again in the new installation", again)
	}
	if output, err := to.admin(t, bin, "restore", file); err == nil ||
		!strings.Contains(output, "not empty") {
		t.Errorf("restored twice: %v\n%s", err, output)
	}
}

// A backup of an installation with SQLite can be restored into one with PostgreSQL or SQLite, even
// without the messages of the streams. Without the messages, the inputs of earlier executions are
// lost. The records, the keys, the audit log and the webhook URLs are restored in any case.
func TestRestoreElsewhere(t *testing.T) {
	t.Parallel()
	bin := buildCommandLine(t)
	from := install(t, 1)
	paths := []string{makeWorkflow(t, from.client, "orders"), makeWorkflow(t, from.client, "bills")}
	_, stop := from.runs(t)
	before := from.send(t, paths, "before", 100)
	for _, s := range before {
		recorded(t, from.client, s.id, func(e api.ExecutionDetail) bool {
			return e.Status == "succeeded"
		})
	}
	stop()
	key, err := from.client.CreateKey(t.Context(), api.PutKey{Name: "CI", Role: "viewer"})
	if err != nil {
		t.Fatal(err)
	}
	entries := auditIDs(t, from.client)
	file := filepath.Join(t.TempDir(), "hookstart.backup")
	if output, err := from.admin(t, bin, "backup", file); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	for what, c := range map[string]struct {
		postgres bool
		flags    []string
		messages bool
	}{
		"into PostgreSQL":                       {true, nil, true},
		"into PostgreSQL, without the messages": {true, []string{"--no-with-messages"}, false},
		"into SQLite, without the messages":     {false, []string{"--no-with-messages"}, false},
	} {
		t.Run(what, func(t *testing.T) {
			database := "sqlite:" + filepath.Join(t.TempDir(), "executions.db")
			if c.postgres {
				database = pgtest.StartServer(t).URL()
			}
			to := installOn(t, database, 1)
			if output, err := to.admin(t, bin,
				append([]string{"restore", file}, c.flags...)...); err != nil {
				t.Fatalf("%v\n%s", err, output)
			}
			if a, b := from.accepted(t, before), to.accepted(t, before); !maps.Equal(a, b) ||
				len(a) != len(before) {
				t.Errorf("the records differ: %d and %d", len(a), len(b))
			}
			if _, err := apiclient.New(to.api, key.Secret).WhoAmI(t.Context()); err != nil {
				t.Errorf("the key: %v", err)
			}
			after := auditIDs(t, to.client)
			for _, id := range entries {
				if !slices.Contains(after, id) {
					t.Errorf("the entry %s of the audit is gone", id)
				}
			}
			is := recorded(t, to.client, before[7].id, func(api.ExecutionDetail) bool {
				return true
			})
			if is.Status != "succeeded" || is.InputExpired == c.messages ||
				(c.messages && string(is.Input) != `{"body":"{\"n\":7}"}`) {
				t.Errorf("an earlier execution: %+v", is)
			}
			a, err := post(t.Context(), to.urls[0]+before[7].path, map[string]string{
				"X-Webhook-Delivery-Id": before[7].delivery,
			}, strings.NewReader(`{"n":7}`))
			if err != nil || a.Status != 200 ||
				(c.messages && (!a.Deduplicated || a.ExecutionID != before[7].id)) {
				t.Errorf("an earlier delivery: %+v, %v", a, err)
			}
			a, err = post(t.Context(), to.urls[0]+paths[1], nil,
				strings.NewReader(`{"after":true}`))
			if err != nil || a.Status != 200 {
				t.Fatalf("%+v, %v", a, err)
			}
			if e := recorded(t, to.client, a.ExecutionID, func(api.ExecutionDetail) bool {
				return true
			}); string(e.Input) != `{"body":"{\"after\":true}"}` || e.InputExpired {
				t.Errorf("a new execution: %+v", e)
			}
		})
	}
}

// If a change is made while a backup is taken, the backup contains either both the change and its
// audit entry, or neither.
func TestBackupHasTheAuditOfItsChanges(t *testing.T) {
	t.Parallel()
	bin := buildCommandLine(t)
	from := install(t, 1)
	makeWorkflow(t, from.client, "first")
	put := func(id, name string) {
		if _, err := from.client.PutWorkflow(t.Context(), id, api.PutWorkflow{
			AccountID: "tests",
			Name:      name,
			Triggers:  []api.PutTrigger{{NodeID: "node"}},
		}); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	stopped, stop := context.WithCancel(t.Context())
	var changing sync.WaitGroup
	changing.Go(func() {
		for n := 1; stopped.Err() == nil && n < 1_000; n++ {
			// The workflow's name is the number of its changes so far. After the restore, the test
			// compares this number with the number of audit entries.
			put("counter", strconv.Itoa(n))
			put(fmt.Sprint("new-", n), "new")
		}
	})
	file := filepath.Join(t.TempDir(), "hookstart.backup")
	for range 3 {
		if output, err := from.admin(t, bin, "backup", file); err != nil {
			t.Fatalf("%v\n%s", err, output)
		}
	}
	stop()
	changing.Wait()

	to := install(t, 1)
	if output, err := to.admin(t, bin, "restore", file); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	entries := map[string]int{} // number of audit entries by workflow
	for e := range auditEntries(t, to.client) {
		if e.Action == "workflow.create" || e.Action == "workflow.update" {
			entries[e.WorkflowID]++
		}
	}
	for w := range items(t, func(p apiclient.Page) (api.List[api.Workflow], error) {
		return to.client.Workflows(t.Context(), "", p)
	}) {
		want := 1
		if w.ID == "counter" {
			var err error
			if want, err = strconv.Atoi(w.Name); err != nil {
				t.Fatal(err)
			}
			t.Logf("%d changes of one workflow", want)
		}
		if entries[w.ID] != want {
			t.Errorf("workflow %s has %d entries in the audit, want %d", w.ID, entries[w.ID],
				want)
		}
		delete(entries, w.ID)
	}
	if len(entries) > 0 {
		t.Errorf("the audit has changes that the file has not: %v", entries)
	}
}

// If the secrets key is missing, the restore is refused at once. Otherwise the operator would learn
// of the missing key only later, when requests of senders fail.
func TestRestoreNeedsTheKey(t *testing.T) {
	t.Parallel()
	bin := buildCommandLine(t)
	keyFile := func(line string) string {
		path := filepath.Join(t.TempDir(), "secrets.key")
		if err := os.WriteFile(path, []byte(line+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	line := seal.NewKeyLine()
	id, _, _ := strings.Cut(line, ":")
	from := install(t, 1, "--secrets-key-file="+keyFile(line))
	path := makeWorkflow(t, from.client, "orders")
	file := filepath.Join(t.TempDir(), "hookstart.backup")
	if output, err := from.admin(t, bin, "backup", file); err != nil ||
		!strings.Contains(output, "a restore needs the --secrets-key-file with the key "+id) {
		t.Fatalf("%v\n%s", err, output)
	}
	if output, err := from.admin(t, bin, "restore", "--check", file); err != nil ||
		!strings.Contains(output, "can be restored") || !strings.Contains(output, id) {
		t.Errorf("%v\n%s", err, output)
	}
	for _, flags := range [][]string{nil, {"--secrets-key-file=" + keyFile(seal.NewKeyLine())}} {
		to := install(t, 1, flags...)
		output, err := to.admin(t, bin, "restore", file)
		if err == nil || !strings.Contains(output, "executor") ||
			!strings.Contains(output, "ingress") ||
			strings.Count(output, "lacks the key "+id) != 2 ||
			!strings.Contains(output, "nothing was restored") {
			t.Errorf("%v: %v\n%s", flags, err, output)
		}
		if list, err := to.client.Accounts(t.Context(), apiclient.Page{}); err != nil ||
			len(list.Items) > 0 {
			t.Errorf("%+v, %v", list, err)
		}
		if output, err := to.admin(t, bin, "restore", "--without-keys", file); err != nil {
			t.Errorf("%v\n%s", err, output)
		}
	}
	to := install(t, 1, "--secrets-key-file="+keyFile(seal.NewKeyLine()+"\n"+line))
	if output, err := to.admin(t, bin, "restore", file); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	if a, err := post(t.Context(), to.urls[0]+path, nil, strings.NewReader(`{}`)); err != nil ||
		a.Status != 200 {
		t.Errorf("%+v, %v", a, err)
	}
}

// send posts n deliveries to the paths in turn, 16 at a time, and returns them with their execution
// IDs. The delivery IDs are name-0, name-1 and so on.
func (i *installation) send(t *testing.T, paths []string, name string, n int) []sent {
	t.Helper()
	all, numbers := make([]sent, n), make(chan int)
	var posting sync.WaitGroup
	for range 16 {
		posting.Go(func() {
			for at := range numbers {
				s := sent{path: paths[at%len(paths)], delivery: fmt.Sprint(name, "-", at)}
				a, err := post(t.Context(), i.urls[0]+s.path, map[string]string{
					"X-Webhook-Delivery-Id": s.delivery,
				}, strings.NewReader(fmt.Sprintf(`{"n":%d}`, at)))
				if err != nil || a.Status != 200 {
					t.Errorf("%+v: %+v, %v", s, a, err)
				}
				s.id = a.ExecutionID
				all[at] = s
			}
		})
	}
	for at := range all {
		numbers <- at
	}
	close(numbers)
	posting.Wait()
	return all
}

// runnersAtOnce is the maximum number of executions that a runner of these tests runs concurrently.
const runnersAtOnce = 8

// runs starts a runner for the default queue. The runner adds the ID of each execution that it runs
// to ran. The caller may stop it with stop; otherwise it stops when the test ends.
func (i *installation) runs(t *testing.T) (ran *sync.Map, stop func()) {
	t.Helper()
	nc := i.nats.Connect(t)
	ctx, cancel := context.WithCancel(t.Context())
	ran, done := &sync.Map{}, make(chan struct{})
	go func() {
		defer close(done)
		if err := runner.Run(ctx, nc, runner.Options{
			Queue:       "default",
			Group:       "main",
			Concurrency: runnersAtOnce,
		}, func(_ context.Context, e runner.Execution) (any, error) {
			ran.Store(e.ID, true)
			return "done", nil
		}); err != nil {
			t.Errorf("the runner: %v", err)
		}
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return ran, stop
}

// sendUntil posts deliveries until ctx ends, and returns those that were accepted.
func (i *installation) sendUntil(ctx context.Context, t *testing.T, paths []string) (all []sent) {
	t.Helper()
	for n := 0; ctx.Err() == nil; n++ {
		s := sent{path: paths[n%len(paths)], delivery: fmt.Sprint("during-", n)}
		//nolint:contextcheck // the last one is answered after ctx has ended
		a, err := post(t.Context(), i.urls[0]+s.path, map[string]string{
			"X-Webhook-Delivery-Id": s.delivery,
		}, strings.NewReader(`{}`))
		if err != nil || a.Status != 200 {
			t.Errorf("during the backup: %+v, %v", a, err)
			return all
		}
		s.id = a.ExecutionID
		all = append(all, s)
	}
	return all
}

// accepted returns the sequence numbers of the start messages in the stream, as the API reports
// them, keyed by execution ID. It returns those of the given deliveries only.
func (i *installation) accepted(t *testing.T, deliveries []sent) map[string]uint64 {
	t.Helper()
	wanted := map[string]bool{}
	for _, s := range deliveries {
		wanted[s.id] = true
	}
	found := map[string]uint64{}
	for e := range executions(t, i.client, apiclient.ExecutionFilter{}) {
		if wanted[e.ExecutionID] {
			found[e.ExecutionID] = e.StreamSequence
		}
	}
	return found
}

func refusesBrokenFiles(t *testing.T, bin string, i *installation, file string) {
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(t.TempDir(), "broken.backup")
	try := func(what, want string, contents []byte) {
		t.Helper()
		if err := os.WriteFile(broken, contents, 0o600); err != nil {
			t.Fatal(err)
		}
		output, err := i.admin(t, bin, "restore", broken)
		if err == nil || !strings.Contains(output, want) ||
			strings.Count(strings.TrimSpace(output), "\n") != 0 {
			t.Errorf("%s: %v\n%s", what, err, output)
		}
	}
	try("empty", "is not a backup", nil)
	try("something else", "is not a backup", []byte("#!/bin/sh\necho hello\n"))
	for _, length := range []int{len(whole) - 1, len(whole) - 100, len(whole) / 2, 5} {
		try(fmt.Sprint("cut at ", length), "is truncated", whole[:length])
	}
	for range 4 {
		at := 4 + rand.IntN(len(whole)-200)
		flipped := append([]byte(nil), whole...)
		flipped[at] ^= 0x10
		try(fmt.Sprint("a bit at ", at), "is damaged", flipped)
	}
	try("more at its end", "is truncated", append(append([]byte(nil), whole...), '\n'))
}
