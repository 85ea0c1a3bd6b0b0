package storetest

import (
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
)

var senderTests = map[string]func(*testing.T, store.Store){
	"reports add up, and each counts once": func(t *testing.T, s store.Store) {
		at := func(seconds int) time.Time { return epoch.Add(time.Duration(seconds) * time.Second) }
		add := func(id string, seen ...store.SenderActivity) {
			t.Helper()
			if err := s.AddSenderActivity(t.Context(), id, epoch, seen); err != nil {
				t.Fatal(err)
			}
		}
		want := func(expected store.SenderActivity) {
			t.Helper()
			expected.WorkflowID, expected.NodeID = "wf", "node"
			got, err := s.SenderActivity(t.Context(), "wf", "node")
			if err != nil || got != expected {
				t.Errorf("%+v, %v; want %+v", got, err, expected)
			}
		}
		want(store.SenderActivity{})
		add("none")
		add("one", store.SenderActivity{
			WorkflowID: "wf",
			NodeID:     "node",
			VerifiedAt: at(5),
			Deliveries: 3,
			WithoutID:  1,
		},
			store.SenderActivity{WorkflowID: "wf", NodeID: "other", HandshakeAt: at(9)})
		want(store.SenderActivity{VerifiedAt: at(5), Deliveries: 3, WithoutID: 1})
		add("two", store.SenderActivity{
			WorkflowID:    "wf",
			NodeID:        "node",
			RefusedAt:     at(7),
			RefusedCode:   "signature_invalid",
			RefusedReason: "no\x00ne",
			Refused:       2,
		})
		refused := store.SenderActivity{
			VerifiedAt:    at(5),
			Deliveries:    3,
			WithoutID:     1,
			RefusedAt:     at(7),
			RefusedCode:   "signature_invalid",
			RefusedReason: store.SanitizeText("no\x00ne"),
			Refused:       2,
		}
		want(refused)
		add("two", store.SenderActivity{WorkflowID: "wf", NodeID: "node", Refused: 2})
		want(refused)
		// A report that arrives late adds its counts, but its times do not replace later ones.
		add(
			"late",
			store.SenderActivity{
				WorkflowID:  "wf",
				NodeID:      "node",
				VerifiedAt:  at(4),
				HandshakeAt: at(3),
				RefusedAt:   at(6),
				RefusedCode: "signature_missing",
				Refused:     1,
				Deliveries:  1,
			},
			store.SenderActivity{
				WorkflowID: "wf",
				NodeID:     "node",
				VerifiedAt: at(8),
				Deliveries: 1,
			},
		)
		refused.VerifiedAt, refused.HandshakeAt, refused.Refused, refused.Deliveries = at(8), at(3),
			3, 5
		want(refused)
		if err := s.ForgetSender(t.Context(), "wf", "node"); err != nil {
			t.Fatal(err)
		}
		want(store.SenderActivity{})
	},
	"what is known about a workflow is forgotten": func(t *testing.T, s store.Store) {
		for _, workflow := range []string{"wf", "wf2"} {
			seen := []store.SenderActivity{{
				WorkflowID: workflow, NodeID: "node", RefusedAt: epoch, Refused: 1,
			}}
			if err := s.AddSenderActivity(t.Context(), workflow+" senders", epoch,
				seen); err != nil {
				t.Fatal(err)
			}
			filtered := []store.FilteredSummary{{WorkflowID: workflow, NodeID: "node", Count: 1}}
			if err := s.AddFilteredRequests(t.Context(), workflow+" filtered", epoch,
				filtered); err != nil {
				t.Fatal(err)
			}
			addRefusals(t, s, workflow+" refusals", store.RefusalCount{
				WorkflowID: workflow, Code: "token_invalid", Minute: epochMinute, Count: 1,
			})
		}
		if err := s.ForgetWorkflowReports(t.Context(), "wf"); err != nil {
			t.Fatal(err)
		}
		for workflow, want := range map[string]int64{"wf": 0, "wf2": 1} {
			seen, err := s.SenderActivity(t.Context(), workflow, "node")
			if err != nil || seen.Refused != want {
				t.Errorf("sender of %s: %+v, %v", workflow, seen, err)
			}
			filtered, err := s.FilteredSummary(t.Context(), workflow, "node")
			if err != nil || filtered.Count != want {
				t.Errorf("filtered by %s: %+v, %v", workflow, filtered, err)
			}
			refused, err := s.Refusals(t.Context(), workflow, epochMinute)
			if err != nil || int64(len(refused)) != want {
				t.Errorf("refusals of %s: %+v, %v", workflow, refused, err)
			}
		}
		wantMinuteCounts(t, s, epochMinute, nthMinuteCount(0, "filtered", 2),
			nthMinuteCount(0, "refused:token_invalid", 2))
	},
	"a record says who sent it": func(t *testing.T, s store.Store) {
		r := nthRecord(1)
		r.Sender, r.Verified = "stripe", true
		applyNewRecords(t, s, r, nthRecord(2))
		if got := getRecord(t, s, r.ID); got.Sender != "stripe" || !got.Verified {
			t.Errorf("%+v", got)
		}
		if got := getRecord(t, s, nthRecord(2).ID); got.Sender != "" || got.Verified {
			t.Errorf("%+v", got)
		}
	},
}
