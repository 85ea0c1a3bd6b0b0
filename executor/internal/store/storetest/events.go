package storetest

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
)

// failureCause returns the event cause of a failure, or nil for failures of the workflow "silent".
func failureCause(f store.ExecutionFailure) *store.EventCause {
	if f.WorkflowID == "silent" {
		return nil
	}
	return &store.EventCause{
		ID:          "failed:" + f.ExecutionID,
		AccountID:   f.AccountID,
		Kind:        "failed",
		WorkflowID:  f.WorkflowID,
		ExecutionID: f.ExecutionID,
		Queue:       f.Queue,
		At:          f.At,
		Text:        f.Error,
	}
}

// undecidedCauses returns the causes that DecideEvents passes to its callback, without the causes
// of the groups in except. The callback decides nothing, so all causes stay undecided.
func undecidedCauses(
	t *testing.T, s store.Store, except ...store.CauseGroup,
) (found []store.EventCause) {
	t.Helper()
	if err := s.DecideEvents(t.Context(), epoch, epoch, except, func(
		causes []store.EventCause, _ []store.Event,
	) ([]store.Event, []string) {
		found = causes
		return nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	return found
}

// decideAllEvents calls DecideEvents with a callback that turns each stored cause into one event.
// It returns the previously decided events that the callback received.
func decideAllEvents(t *testing.T, s store.Store, now time.Time) (before []store.Event) {
	t.Helper()
	if err := s.DecideEvents(t.Context(), now, epoch, nil, func(
		causes []store.EventCause, decided []store.Event,
	) (events []store.Event, used []string) {
		before = decided
		for _, c := range causes {
			events = append(events, newEvent(c.ID, now))
			used = append(used, c.ID)
		}
		return events, used
	}); err != nil {
		t.Fatal(err)
	}
	return before
}

func newEvent(id string, at time.Time) store.Event {
	return store.Event{
		ID:         id,
		AccountID:  "account",
		Kind:       "failed",
		WorkflowID: "alerts",
		NodeID:     "node",
		Input:      `{"count":1}`,
		DecidedAt:  at,
	}
}

func unpublishedEvents(t *testing.T, s store.Store, exceptWorkflows ...string) []store.Event {
	t.Helper()
	found, err := s.UnpublishedEvents(t.Context(), exceptWorkflows, 100)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func wantHasCauses(t *testing.T, s store.Store, want bool) {
	t.Helper()
	if waiting, err := s.HasEventCauses(t.Context()); err != nil || waiting != want {
		t.Errorf("has causes: %v, %v; want %v", waiting, err, want)
	}
}

var eventTests = map[string]func(*testing.T, store.Store){
	"a failure is a cause once, whatever ends it": func(t *testing.T, s store.Store) {
		s.SetFailureCauseFunc(failureCause)
		silent := nthRecord(5)
		silent.WorkflowID = "silent"
		applyBatch(t, s, store.Batch{Progress: []execution.Progress{failedProgress(4, epoch.Add(4),
			"early")}})
		applyNewRecords(t, s, nthRecord(1), nthRecord(2), nthRecord(3), nthRecord(4), silent)
		wantHasCauses(t, s, true)
		at := epoch.Add(time.Hour)
		for range 2 { // the second round changes nothing
			applyBatch(t, s, store.Batch{Progress: []execution.Progress{
				failedProgress(
					1,
					at,
					"no\x00ne",
				),
				succeededProgress(2, at, "1"),
				withQueueAndWorkflowOf(silent, execution.Progress{
					ID:     silent.ID,
					Status: execution.Failed,
					At:     at,
				}),
			}})
			if _, err := s.EndLostExecutions(t.Context(), []store.LostExecution{
				{ID: nthID(3), StreamSequence: nthRecord(3).StreamSequence},
			}, at.Add(time.Second), "lost"); err != nil {
				t.Fatal(err)
			}
		}
		cause := func(n int, at time.Time, text string) store.EventCause {
			return store.EventCause{
				ID:          "failed:" + nthID(n),
				AccountID:   "account",
				Kind:        "failed",
				WorkflowID:  "workflow",
				ExecutionID: nthID(n),
				Queue:       "default",
				At:          store.StoredTime(at),
				Text:        text,
			}
		}
		want := []store.EventCause{
			cause(4, epoch, "early"), cause(1, at, store.SanitizeText("no\x00ne")),
			cause(3, at.Add(time.Second), "lost"),
		}
		if got := undecidedCauses(t, s); !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	},
	"causes of some groups are left out": func(t *testing.T, s store.Store) {
		s.SetFailureCauseFunc(failureCause)
		other := nthRecord(2)
		other.AccountID = "other"
		applyNewRecords(t, s, nthRecord(1), other)
		applyBatch(t, s, store.Batch{Progress: []execution.Progress{
			failedProgress(1, epoch, "one"), failedProgress(2, epoch.Add(1), "two"),
		}})
		for _, step := range []struct {
			except []store.CauseGroup
			want   []string
		}{
			{nil, []string{nthID(1), nthID(2)}},
			{[]store.CauseGroup{{AccountID: "account", Kind: "failed"}}, []string{nthID(2)}},
			{
				[]store.CauseGroup{{AccountID: "account", Kind: "silent"}},
				[]string{nthID(1), nthID(2)},
			},
			{[]store.CauseGroup{
				{AccountID: "other", Kind: "failed"}, {AccountID: "account", Kind: "failed"},
			}, nil},
		} {
			var found []string
			for _, c := range undecidedCauses(t, s, step.except...) {
				found = append(found, c.ExecutionID)
			}
			if !slices.Equal(found, step.want) {
				t.Errorf("without %+v: %q, want %q", step.except, found, step.want)
			}
		}
	},
	"nobody is told unless somebody asks": func(t *testing.T, s store.Store) {
		applyNewRecords(t, s, nthRecord(1))
		applyBatch(t, s, progressBatch(failedProgress(1, epoch, "no")))
		wantHasCauses(t, s, false)
	},
	"a cause becomes one event, kept for a while after publication": func(
		t *testing.T, s store.Store,
	) {
		s.SetFailureCauseFunc(failureCause)
		applyNewRecords(t, s, nthRecord(1), nthRecord(2))
		applyBatch(t, s, store.Batch{
			Progress: []execution.Progress{failedProgress(1, epoch, "one"), failedProgress(2,
				epoch.Add(1), "two")},
		})
		if before := decideAllEvents(t, s, epoch); len(before) != 0 {
			t.Errorf("decided before: %+v", before)
		}
		wantHasCauses(t, s, false)
		first, two := newEvent("failed:"+nthID(1), epoch), newEvent("failed:"+nthID(2), epoch)
		if got := unpublishedEvents(t, s); !reflect.DeepEqual(got, []store.Event{first, two}) {
			t.Errorf("%+v", got)
		}
		if got := unpublishedEvents(t, s, "other"); len(got) != 2 {
			t.Errorf("without those of another workflow: %+v", got)
		}
		if got := unpublishedEvents(t, s, "other", "alerts"); len(got) != 0 {
			t.Errorf("without those of the workflow: %+v", got)
		}
		published := epoch.Add(time.Second)
		for range 2 {
			if err := s.MarkEventsPublished(t.Context(), []string{first.ID, "other"},
				published); err != nil {
				t.Fatal(err)
			}
			published = published.Add(time.Second)
		}
		if got := unpublishedEvents(t, s); !reflect.DeepEqual(got, []store.Event{two}) {
			t.Errorf("%+v", got)
		}

		// Call DecideEvents for the failure of execution 3 after EventRetention has passed. Its
		// callback still receives the two earlier events, but without their inputs.
		applyNewRecords(t, s, nthRecord(3))
		applyBatch(t, s, progressBatch(failedProgress(3, epoch, "three")))
		late := epoch.Add(store.EventRetention + time.Second)
		before := decideAllEvents(t, s, late)
		if len(before) != 2 || before[0].ID != first.ID || before[0].Input != "" ||
			!before[0].PublishedAt.Equal(epoch.Add(time.Second)) || before[1].ID != two.ID {
			t.Errorf("%+v", before)
		}
		applyNewRecords(t, s, nthRecord(4))
		applyBatch(t, s, progressBatch(failedProgress(4, epoch, "four")))
		ids := []string{}
		for _, e := range decideAllEvents(t, s, late) {
			ids = append(ids, e.ID)
		}
		if !slices.Equal(ids, []string{two.ID, "failed:" + nthID(3)}) {
			// The first event was published and is older than EventRetention, so DecideEvents must
			// have deleted it.
			t.Errorf("%q", ids)
		}
	},
	"conditions begin and end once": func(t *testing.T, s store.Store) {
		condition := store.OngoingCondition{
			AccountID: "account",
			Kind:      "silent",
			Subject:   "workflow/node",
			Since:     store.StoredTime(epoch),
		}
		change := func(number int, ended, announced bool) {
			t.Helper()
			c := store.OngoingConditionChange{OngoingCondition: condition, Ended: ended}
			if announced {
				c.Cause = &store.EventCause{
					ID:        fmt.Sprint("cause ", number),
					AccountID: "account",
					Kind:      "silent",
					At:        epoch.Add(time.Duration(number) * time.Second),
				}
			}
			c.Since = c.Since.Add(time.Duration(number) * time.Hour)
			if err := s.ChangeOngoingConditions(t.Context(),
				[]store.OngoingConditionChange{c}); err != nil {
				t.Fatal(err)
			}
		}
		want := func(open []store.OngoingCondition, causes ...string) {
			t.Helper()
			if got, err := s.OngoingConditions(t.Context()); err != nil ||
				!reflect.DeepEqual(got, open) {
				t.Errorf("%+v, %v; want %+v", got, err, open)
			}
			ids := []string{}
			for _, c := range undecidedCauses(t, s) {
				ids = append(ids, c.ID)
			}
			if !slices.Equal(ids, causes) {
				t.Errorf("causes %q, want %q", ids, causes)
			}
		}
		change(0, true, true)
		want(nil, []string{}...)
		change(0, false, true)
		change(1, false, true) // the condition has already begun
		want([]store.OngoingCondition{condition}, "cause 0")
		change(2, true, true)
		change(3, true, true)
		want(nil, "cause 0", "cause 2")
		change(0, false, false)
		want([]store.OngoingCondition{condition}, "cause 0", "cause 2")
		if err := s.ChangeOngoingConditions(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	},
	"one caller leads until its time is over": func(t *testing.T, s store.Store) {
		at := func(seconds int) time.Time { return epoch.Add(time.Duration(seconds) * time.Second) }
		for i, step := range []struct {
			caller     string
			now, until int
			want       bool
		}{
			{"a", 0, 20, true}, {"b", 5, 25, false}, {"a", 10, 30, true}, {"b", 25, 45, false}, {
				"b", 31, 51, true,
			}, {"a", 32, 52, false},
		} {
			if got, err := s.AcquireConditionLease(t.Context(), step.caller, at(step.now),
				at(step.until)); err != nil || got != step.want {
				t.Errorf("step %d: %v, %v", i, got, err)
			}
		}
	},
	"senders of which some requests were refused": func(t *testing.T, s store.Store) {
		refused := store.SenderActivity{
			WorkflowID:  "wf",
			NodeID:      "b",
			RefusedAt:   store.StoredTime(epoch),
			RefusedCode: "signature_invalid",
			Refused:     1,
		}
		if err := s.AddSenderActivity(t.Context(), "one", epoch, []store.SenderActivity{
			{WorkflowID: "wf", NodeID: "a", VerifiedAt: epoch, Deliveries: 1}, refused,
		}); err != nil {
			t.Fatal(err)
		}
		if got, err := s.RefusedSenders(t.Context()); err != nil ||
			!reflect.DeepEqual(got, []store.SenderActivity{refused}) {
			t.Errorf("%+v, %v", got, err)
		}
	},
	"records of one node": func(t *testing.T, s store.Store) {
		applyNewRecords(t, s, nRecords(6, func(i int, r *store.Record) {
			r.NodeID = fmt.Sprint("node ", i%3)
		})...)
		if got := recordIDs(listRecords(t, s, store.RecordFilter{
			WorkflowID: "workflow",
			NodeID:     "node 1",
			Source:     execution.SourceWebhook,
		}, store.RecordPosition{}, 5)); !slices.Equal(got, []string{nthID(4), nthID(1)}) {
			t.Errorf("%q", got)
		}
	},
}
