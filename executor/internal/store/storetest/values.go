package storetest

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
)

var valueTests = map[string]func(*testing.T, store.Store){
	"any UTF-8 is kept": func(t *testing.T, s store.Store) {
		for n, text := range []string{
			"it's \"quoted\" \\ {a,b} NULL $1 ? -- %_", "\x01\x1f\x7f\u0080",
			"\u200e\u2028\ufeff\ufffd\uffff", "日本語 ü 😀",
			"e\u0301 is not é", strings.Repeat("long ", 50_000), " \t\r\n ",
		} {
			r := nthRecord(n)
			r.ContentType, r.Error = text, text
			r.DeliveryID = text[:min(len(text), execution.MaxDeliveryIDBytes)]
			applyNewRecords(t, s, r)
			wantRecord(t, getRecord(t, s, r.ID), r)
			if found := listRecords(t, s, store.RecordFilter{DeliveryID: r.DeliveryID},
				store.RecordPosition{},
				5); len(found) != 1 || found[0].ID != r.ID {
				t.Errorf("by delivery ID %.20q: %q", r.DeliveryID, recordIDs(found))
			}
		}
	},
	"delivery IDs in a header, in the body and signed are found by the same text": func(
		t *testing.T, s store.Store,
	) {
		for n, makeID := range []func(workflowID, nodeID, deliveryID string) string{
			execution.IDForDelivery, execution.RejectedIDForDelivery,
		} {
			for m, key := range []string{
				"evt_1", execution.MarkDerivedID("evt_1"), execution.MarkSignedID("evt_1"),
			} {
				r := nthRecord(3*n + m)
				r.DeliveryID = "evt_1"
				if n == 1 {
					r.Status = execution.Rejected
				}
				r.ID = makeID(r.WorkflowID, r.NodeID, key)
				if !r.HasIDFromDelivery() {
					t.Errorf("%s is not known as the ID of %q", r.ID, key)
				}
				applyNewRecords(t, s, r)
			}
		}
		if found := listRecords(t, s, store.RecordFilter{DeliveryID: "evt_1"},
			store.RecordPosition{}, 7); len(found) != 6 {
			t.Errorf("found %q", recordIDs(found))
		}
	},
	"NUL and broken UTF-8 are replaced in texts and kept in outputs": func(
		t *testing.T, s store.Store,
	) {
		const broken, stored = "a\x00b\xff\xfec\xed\xa0\x80", "a\ufffdb\ufffdc\ufffd"
		r := nthRecord(1)
		r.DeliveryID, r.ContentType = broken, broken
		applyNewRecords(t, s, r, nthRecord(2))
		applyBatch(t, s, store.Batch{
			Progress: []execution.Progress{failedProgress(1, epoch, broken), succeededProgress(2,
				epoch, broken)},
			PutAside: []store.AsideMessage{
				{StreamSequence: 1, Subject: broken, Reason: broken, At: epoch},
			},
		})
		want := r
		want.Status, want.FinishedAt, want.Error, want.DeliveryID, want.ContentType =
			execution.Failed, epoch, stored, stored, stored
		wantRecord(t, getRecord(t, s, nthID(1)), want)
		if got := getRecord(t, s, nthID(2)).Output; string(got) != broken {
			t.Errorf("output %q", got)
		}
		// The stored delivery ID is sanitized, but a filter with the original text finds the
		// record.
		if found := listRecords(t, s, store.RecordFilter{DeliveryID: broken},
			store.RecordPosition{}, 5); len(found) != 1 {
			t.Errorf("found %d", len(found))
		}
		found, err := s.ListAside(t.Context(), store.AsideFilter{},
			store.AsidePosition{}, 1)
		if err != nil || found[0].Reason != stored || found[0].Subject != stored {
			t.Errorf("%+v, %v", found, err)
		}
		addDuplicates(t, s, broken, epoch, map[string]int64{broken: 1, nthID(1): 1})
		addDuplicates(t, s, broken, epoch, map[string]int64{nthID(1): 1})
		wantDuplicates(t, s, 1, 1)
		if _, err := s.TokensLastUsed(t.Context(), []string{broken}); err != nil {
			t.Error(err)
		}
	},
	"times are cut to microseconds and are UTC": func(t *testing.T, s store.Store) {
		zone := time.FixedZone("east", 3*3600)
		for n, c := range []struct{ at, want time.Time }{
			{
				time.Date(2026, 3, 1, 1, 2, 3, 456_789_999, zone),
				time.Date(2026, 2, 28, 22, 2, 3, 456_789_000, time.UTC),
			},
			{
				time.Date(1969, 12, 31, 23, 59, 59, 999_999_999, time.UTC),
				time.Date(1969, 12, 31, 23, 59, 59, 999_999_000, time.UTC),
			},
			{
				time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC),
				time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC),
			},
			{time.Unix(0, 0), time.Unix(0, 0).UTC()},
			{time.Time{}, time.Time{}},
		} {
			r := nthRecord(n)
			r.AcceptedAt, r.RecordedAt, r.StartedAt, r.FinishedAt = c.at, c.at, c.at, c.at
			applyNewRecords(t, s, r)
			r.AcceptedAt, r.RecordedAt, r.StartedAt, r.FinishedAt = c.want, c.want, c.want, c.want
			wantRecord(t, getRecord(t, s, r.ID), r)
		}
	},
	"large numbers and outputs": func(t *testing.T, s store.Store) {
		r := nthRecord(1)
		r.BodyBytes, r.StreamSequence = math.MaxInt64, math.MaxInt64
		r.Output = []byte(strings.Repeat("x", 1<<20))
		applyNewRecords(t, s, r)
		wantRecord(t, getRecord(t, s, r.ID), r)
	},
	"large numbers of attempts": func(t *testing.T, s store.Store) {
		const reported = math.MaxUint32 // the largest number in a report
		recorded, reportedLate := nthRecord(1), nthRecord(3)
		recorded.Attempts = reported
		running, pending := runningProgress(2, epoch), runningProgress(3, epoch)
		running.Attempt, pending.Attempt = reported, reported
		applyNewRecords(t, s, recorded, nthRecord(2))
		applyBatch(t, s, store.Batch{Progress: []execution.Progress{running, pending}})
		applyNewRecords(t, s, reportedLate)
		for n := 1; n <= 3; n++ {
			if got := getRecord(t, s, nthID(n)).Attempts; got != math.MaxInt32 {
				t.Errorf("execution %d: %d attempts", n, got)
			}
		}
		applyBatch(t, s, progressBatch(succeededProgress(2, epoch, "")))
		if got := getRecord(t, s, nthID(2)).Status; got != execution.Succeeded {
			t.Errorf("the status is %s", got)
		}
	},
	"an empty output is none": func(t *testing.T, s store.Store) {
		r := nthRecord(1)
		r.Output = []byte{}
		applyNewRecords(t, s, r)
		applyBatch(t, s, progressBatch(succeededProgress(1, epoch, "")))
		if got := getRecord(t, s, nthID(1)).Output; got != nil {
			t.Errorf("output %q", got)
		}
	},
}
