package apiserver_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

// letters creates dead letters of the workflow wf. Their IDs are id(from), id(from+1) and so on, up
// to id(to-1).
func (r *rig) letters(from, to int) {
	r.t.Helper()
	for n := from; n < to; n++ {
		r.failed(n, nil)
		rec, err := r.store.Get(r.t.Context(), id(n))
		r.check(err)
		if rec.Status != execution.Failed {
			r.t.Fatal(rec.Status)
		}
	}
}

// lettersLeft returns the IDs of the dead letters that are still in the list.
func (r *rig) lettersLeft() (ids []string) {
	r.t.Helper()
	for _, d := range decode[api.List[api.DeadLetter]](r.get("/dead-letters?limit=200").
		is(200)).Items {
		ids = append(ids, d.ID)
	}
	return ids
}

func TestRequeueMany(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "free")
	r.workflow("wf", "acme", "node")
	r.letters(0, 40)
	requeue := func(body string) api.Requeued {
		t.Helper()
		return decode[api.Requeued](r.post("/dead-letters/requeue", body).is(200))
	}
	// Dead letters can be selected by ID. An ID that belongs to no dead letter is skipped.
	ids := fmt.Sprintf(`{"ids":[%q,%q,%q,%q,"message-77","nonsense"]}`, id(0), id(1), id(1), id(99))
	if got := requeue(ids); got.Requeued != 2 {
		t.Errorf("%+v", got)
	}
	if got := requeue(ids); got.Requeued != 0 {
		t.Errorf("again: %+v", got)
	}
	if got := requeue(`{"ids":[]}`); got.Requeued != 0 {
		t.Errorf("none: %+v", got)
	}
	// A null does not select by nothing: the client has lost the value.
	for _, body := range []string{`{"ids":null}`, `{"workflowId":null}`} {
		for _, path := range []string{"/dead-letters/requeue", "/dead-letters/dismiss"} {
			r.post(path, body).is(422)
		}
	}
	r.post("/executions/cancel", `{"workflowId":"wf","since":null}`).is(422)
	r.post("/executions/replay", `{"workflowId":null,"status":"rejected"}`).is(422)
	// A dead letter whose message has expired stays in the list and does not block the others.
	r.check(r.streamHandle().DeleteMsg(t.Context(), 3))
	// These filters match no dead letter.
	for _, none := range []string{
		`{"workflowId":"other"}`, `{"until":"2026-01-01T00:00:00Z"}`,
		`{"since":"2026-03-02T00:00:00Z"}`, `{"reason":"It broke"}`, `{"accountId":"other"}`,
	} {
		if got := requeue(none); got.Requeued != 0 {
			t.Errorf("%s: %+v", none, got)
		}
	}
	// Eight concurrent calls requeue the other 37 dead letters. Each of these is requeued and
	// counted once.
	var all sync.WaitGroup
	var mu sync.Mutex
	total := 0
	for range 8 {
		all.Go(func() {
			got := requeue(`{"workflowId":"wf","reason":"it broke"}`)
			mu.Lock()
			defer mu.Unlock()
			total += got.Requeued
			if len(got.Left) != 1 || got.Left[0].Code != api.CodeInputExpired ||
				got.Left[0].Count != 1 {
				t.Errorf("left: %+v", got.Left)
			}
		})
	}
	all.Wait()
	if total != 37 {
		t.Errorf("%d requeued", total)
	}
	for n := range 40 {
		want := 1
		if n == 2 {
			want = 0
		}
		if got := len(r.starts(id(n))); got != want {
			t.Errorf("%d was started %d times", n, got)
		}
	}
	if left := r.lettersLeft(); len(left) != 1 || left[0] != id(2) {
		t.Errorf("left: %v", left)
	}
	r.wantInvalid(r.post("/dead-letters/requeue", `{"ids":["a"],"workflowId":"wf"}`), "ids", "")
	r.wantInvalid(r.post("/dead-letters/requeue", ``), "body", "")
	r.wantInvalid(r.post("/dead-letters/requeue", `{"workflow":"wf"}`), "workflow", "")
}

// A bulk requeue begins with the oldest dead letters. The messages of most of these may have
// expired, and the requeue does not waste time on reading them.
func TestExpiredDeadLettersAreNotRead(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "free")
	r.workflow("wf", "acme", "node")
	r.letters(0, 20)
	r.check(r.streamHandle().Purge(t.Context(), jetstream.WithPurgeSequence(18)))
	r.check(r.streamHandle().DeleteMsg(t.Context(), 19)) // is missing among younger ones
	read, err := r.nc.SubscribeSync("$JS.API.DIRECT.GET.EXECUTIONS")
	r.check(err)
	r.check(r.nc.Flush())
	got := decode[api.Requeued](r.post("/dead-letters/requeue", `{}`).is(200))
	left := []api.Left{{Code: api.CodeInputExpired, Count: 18}}
	if got.Requeued != 2 || !slices.Equal(got.Left, left) || got.More {
		t.Errorf("%+v", got)
	}
	r.check(r.nc.Flush())
	if n, _, err := read.Pending(); err != nil || n != 3 {
		t.Errorf("%d messages were read: %v", n, err)
	}
}

// An executor crashes during a bulk requeue: it has started executions, but has not marked their
// dead letters as requeued. When the call is repeated, these executions are not started again.
func TestRequeueManyAfterACrash(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "free")
	r.workflow("wf", "acme", "node")
	r.letters(0, 3)
	// The call crashed at this point: the new execution of the first dead letter is recorded, and
	// that of the second is only in the stream. Neither dead letter is marked as requeued.
	r.records(store.Batch{NewRecords: []store.Record{record(execution.IDForRequeue(id(0)))}})
	msg, err := stream.StartMessage(execution.Start{
		ID:         execution.IDForRequeue(id(1)),
		WorkflowID: "wf",
		NodeID:     "node",
		AccountID:  "acme",
		Queue:      "default",
		Source:     execution.SourceRerun,
		RerunOf:    id(1),
		AcceptedAt: time.Now(),
		Payload:    execution.Payload{Kind: execution.BodyText},
	})
	r.check(err)
	msg.Header.Set("Nats-Msg-Id", execution.IDForRequeue(id(1)))
	r.message(msg, nil)
	if got := decode[api.Requeued](r.post("/dead-letters/requeue",
		`{}`).is(200)); got.Requeued != 3 {
		t.Errorf("%+v", got)
	}
	for n, want := range []int{0, 1, 1} {
		if got := len(r.starts(id(n))); got != want {
			t.Errorf("%d was started %d times, want %d", n, got, want)
		}
	}
}

func TestDismissMany(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "free")
	r.workflow("wf", "acme", "node")
	r.letters(0, 6)
	r.records(store.Batch{PutAside: []store.AsideMessage{
		{
			StreamSequence: 11,
			Subject:        "executions.start.default.wf.node",
			Reason:         "garbage",
			At:             epoch,
		},
		{
			StreamSequence: 12,
			Subject:        "executions.progress.default.wf.x",
			Reason:         "garbage",
			At:             epoch,
		},
	}})
	dismiss := func(body string) int {
		t.Helper()
		return decode[api.Dismissed](r.post("/dead-letters/dismiss", body).is(200)).Dismissed
	}
	some := fmt.Sprintf(`{"ids":[%q,%q,"report-12",%q]}`, id(0), id(1), id(99))
	if got := dismiss(some); got != 3 {
		t.Errorf("dismissed %d", got)
	}
	if got := dismiss(some); got != 0 {
		t.Errorf("again: %d", got)
	}
	detail := decode[api.ExecutionDetail](r.get("/executions/" + id(0)).is(200))
	if detail.Status != "failed" || detail.DismissedAt.IsZero() || *detail.Error != "it broke" {
		t.Errorf("%+v", detail)
	}
	if got := dismiss(`{"reason":"it broke"}`); got != 4 {
		t.Errorf("by reason: %d", got)
	}
	if left := r.lettersLeft(); len(left) != 1 || left[0] != "message-11" {
		t.Errorf("left: %v", left)
	}
	if got := dismiss(`{}`); got != 1 {
		t.Errorf("all: %d", got)
	}
	// A bulk requeue skips a dismissed dead letter, but a requeue of this dead letter alone still
	// succeeds.
	if got := decode[api.Requeued](r.post("/dead-letters/requeue",
		fmt.Sprintf(`{"ids":[%q]}`, id(0))).is(200)).Requeued; got != 0 {
		t.Errorf("requeued %d", got)
	}
	r.post("/executions/"+id(0)+"/requeue", "").is(200)
}

// A caller for one account requeues, dismisses and replays only that account's objects, even if the
// call names the IDs of other objects.
func TestBulkOfOneAccount(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.twoAccounts()
	key := r.key("editor", "acme").Secret
	both := fmt.Sprintf(`{"ids":[%q,%q,"message-1"]}`, executionOf("acme"), executionOf("globex"))
	call := func(path, body string) answer {
		t.Helper()
		return r.call("POST", path, body, with(key))
	}
	if got := decode[api.Dismissed](call("/dead-letters/dismiss",
		`{"accountId":"globex"}`).is(200)); got.Dismissed != 0 {
		t.Errorf("another's: %+v", got)
	}
	if got := decode[api.Requeued](call("/dead-letters/requeue", both).is(200)); got.Requeued != 1 {
		t.Errorf("%+v", got)
	}
	if got := decode[api.Dismissed](call("/dead-letters/dismiss",
		both).is(200)); got.Dismissed != 0 {
		t.Errorf("%+v", got)
	}
	if got := decode[api.Dismissed](call("/dead-letters/dismiss",
		`{}`).is(200)); got.Dismissed != 0 {
		t.Errorf("%+v", got)
	}
	if left := r.lettersLeft(); len(left) != 1 || left[0] != executionOf("globex") {
		t.Errorf("left: %v", left)
	}
	call("/executions/"+executionOf("globex")+"/replay", "").refused(404, api.CodeNotFound)
}

// A bulk call restarts executions in the order in which they were accepted, whether they were
// selected by a filter or by IDs.
func TestBulkKeepsTheOrderOfAcceptance(t *testing.T) {
	t.Parallel()
	const half = 40
	for what, selection := range map[string]func() string{
		"by a filter": func() string { return `{"workflowId":"wf"}` },
		"by IDs": func() string {
			var ids []string
			for n := 2*half - 1; n >= 0; n-- {
				ids = append(ids, fmt.Sprintf("%q", id(n)))
			}
			return `{"ids":[` + strings.Join(ids, ",") + `]}`
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r := start(t)
			r.account("acme", "free")
			r.workflow("wf", "acme", "node")
			// The second half is stored first, so that the order of acceptance differs from the
			// order in the stream.
			r.letters(half, 2*half)
			r.letters(0, half)
			if got := decode[api.Requeued](r.post("/dead-letters/requeue",
				selection()).is(200)); got.Requeued != 2*half {
				t.Fatalf("%+v", got)
			}
			info, err := r.streamHandle().Info(t.Context())
			r.check(err)
			var order []string
			for sequence := uint64(1); sequence <= info.State.LastSeq; sequence++ {
				msg, err := r.streamHandle().GetMsg(t.Context(), sequence)
				r.check(err)
				event, err := stream.Decode(msg.Subject, msg.Header, msg.Data)
				r.check(err)
				if event.Start != nil && event.Start.RerunOf != "" {
					order = append(order, event.Start.RerunOf)
				}
			}
			for n := range 2 * half {
				if order[n] != id(n) {
					t.Fatalf("place %d: %s, want %s; all: %v", n, order[n], id(n), order)
				}
			}
		})
	}
}
