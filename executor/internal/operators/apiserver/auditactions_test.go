package apiserver_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/fromstream"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
)

// recordAll records every start message in the stream, as the recorder does. It records each
// message twice, as if it had been redelivered; the second time must not change anything. recordAll
// may be called repeatedly.
func (r *rig) recordAll(now time.Time) {
	r.t.Helper()
	s := r.streamHandle()
	for range 2 {
		for sequence := uint64(1); sequence <= s.CachedInfo().State.LastSeq; sequence++ {
			msg, err := s.GetMsg(r.t.Context(), sequence)
			if err == nil {
				var batch store.Batch
				batch, err = fromstream.RecoveryBatch(msg, now)
				r.check(err)
				batch.RecoveredAside = nil
				r.records(batch)
			}
			if err != nil &&
				err != jetstream.ErrMsgNotFound { //nolint:errorlint // it is not wrapped
				r.t.Fatal(err)
			}
		}
	}
}

// Each action of an operator on an execution has exactly one entry in the audit log. The entry is
// stored together with the start message, or with the changed record. A repeated action is neither
// performed nor audited again.
func TestDeedsAreAudited(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "free")
	r.workflow("wf", "acme", "node")
	r.put("/workflows/wf/triggers/node/sample-payload", `{"a":1}`).is(200)
	r.letters(0, 8)
	r.records(store.Batch{
		PutAside: []store.AsideMessage{
			{
				StreamSequence: 77,
				Subject:        "executions.start.default.wf.node",
				Reason:         "garbage",
				At:             epoch,
			},
		},
	})
	editor, other := r.key("editor", ""), r.key("editor", "acme")
	as := func(key api.NewKey, method, path, body string) answer {
		t.Helper()
		return r.call(method, path, body, with(key.Secret))
	}

	type auditAction struct{ actor, action, node, of string } // of is the ID of the object
	var want []auditAction
	did := func(key api.NewKey, action, object string) {
		want = append(want, auditAction{key.ID, action, "node", object})
	}
	as(editor, "POST", "/workflows/wf/triggers/node/rerun", "").is(200)
	did(editor, "execution.rerun", "")
	as(other, "POST", "/executions/"+id(0)+"/rerun", "").is(200)
	did(other, "execution.rerun", id(0))
	as(editor, "POST", "/executions/"+id(1)+"/replay", "").is(200)
	did(editor, "execution.replay", id(1))
	once := func(key api.NewKey) answer {
		return r.call("POST", "/executions/"+id(2)+"/replay", "", with(key.Secret), withKey("k"))
	}
	once(other).is(200)
	once(editor).is(200) // the replay was started by the previous call
	did(other, "execution.replay", id(2))
	as(editor, "POST", "/executions/"+id(3)+"/requeue", "").is(200)
	as(other, "POST", "/executions/"+id(3)+"/requeue", "").is(200)
	did(editor, "dead-letter.requeue", id(3))
	as(other, "POST", "/dead-letters/requeue", fmt.Sprintf(`{"ids":[%q,%q]}`, id(3), id(4))).is(200)
	did(other, "dead-letter.requeue", id(4))
	for range 2 {
		as(other, "POST", "/dead-letters/dismiss",
			fmt.Sprintf(`{"ids":[%q,%q]}`, id(5), id(3))).is(200)
	}
	did(other, "dead-letter.dismiss", id(5))
	as(editor, "POST", "/dead-letters/dismiss", `{}`).is(200)
	for n := range 8 {
		if n != 3 && n != 4 && n != 5 {
			did(editor, "dead-letter.dismiss", id(n))
		}
	}
	want = append(want, auditAction{editor.ID, "dead-letter.dismiss", "", "message-77"})
	// An action that is refused or changes nothing adds no entry.
	as(editor, "POST", "/executions/"+id(99)+"/rerun", "").refused(404, api.CodeNotFound)
	as(r.key("viewer", ""), "POST", "/executions/"+id(0)+"/rerun", "").refused(403,
		api.CodeForbidden)
	as(other, "POST", "/dead-letters/dismiss", `{}`).is(200)

	r.recordAll(time.Now())
	var got []auditAction
	ids := map[string]bool{}
	for _, e := range decode[api.List[api.AuditEntry]](r.get("/audit?limit=200").is(200)).Items {
		d := auditAction{e.Actor.ID, e.Action, e.NodeID, ""}
		for _, c := range e.Changes {
			switch c.Field {
			case "executionId":
				started, err := r.store.Get(t.Context(), fmt.Sprint(c.To))
				if err != nil || started.Source != execution.SourceRerun || started.ID != e.ID {
					t.Errorf("%+v: %v", e, err)
				}
			default:
				d.of = fmt.Sprint(c.To)
			}
		}
		if ids[e.ID] || e.Actor.Kind != "key" || time.Since(e.At) > time.Minute ||
			(e.NodeID != "" && (e.AccountID != "acme" || e.WorkflowID != "wf")) {
			t.Errorf("%+v", e)
		}
		ids[e.ID] = true
		got = append(got, d)
	}
	text := func(d auditAction) string { return fmt.Sprintf("%+v", d) }
	sorted := func(all []auditAction) (texts []string) {
		for _, d := range all {
			texts = append(texts, text(d))
		}
		slices.Sort(texts)
		return texts
	}
	if a, b := sorted(got), sorted(want); !slices.Equal(a, b) {
		t.Errorf("in the audit:\n%q\nwant\n%q", a, b)
	}
}
