package store

import (
	"slices"
	"strings"
	"time"

	"github.com/hookstart/hookstart/shared/execution"
)

// Refusal is the number of requests to one workflow that were refused with one code within one
// minute.
type Refusal struct {
	// WorkflowID is "" if no such workflow exists, or if there were more workflows than are
	// counted.
	WorkflowID string
	Code       string
	Minute     time.Time // the beginning of the minute
	Count      int64
	Last       RefusedRequest // the most recent of these requests
}

// RefusedRequest is the last request that was refused with a code.
type RefusedRequest struct {
	At        time.Time
	BodyBytes int64  // the declared length of the body in bytes; -1 means that none was declared
	UserAgent string // printable ASCII, at most stream.MaxUserAgent bytes; "" means none
}

// RefusalSum is the number of requests to one workflow that were refused with one code.
type RefusalSum struct {
	Code  string
	Count int64
	Last  RefusedRequest // the most recent of these requests
}

// WorkflowRefusalSum is a RefusalSum with its workflow.
type WorkflowRefusalSum struct {
	WorkflowID string // see Refusal.WorkflowID
	RefusalSum
}

// RefusalPosition is the position in the list after the sum with that last time, workflow and code.
// Its zero value is the beginning.
type RefusalPosition struct {
	LastAt           time.Time
	WorkflowID, Code string
}

// MinuteCount is the number of requests with one outcome within one minute.
type MinuteCount struct {
	Minute time.Time // the beginning of the minute
	Kind   string    // the outcome: one of the Kind constants
	Count  int64
}

// The kinds of counts by the minute.
const (
	// KindAccepted counts requests that started an execution.
	KindAccepted = "accepted"
	// KindDeduplicated counts repeats, which started nothing.
	KindDeduplicated = "deduplicated"
	// KindRefused, followed by a code, counts requests that were refused with that code.
	KindRefused = "refused:"
)

// MaxRefusals is about the number of rows of refusals that are kept. Strangers can cause one row
// for each workflow ID, code and minute.
const MaxRefusals = 200_000

// AcceptedMinutes counts the records that a request started, by minute, oldest first.
func AcceptedMinutes(inserted []Record) []MinuteCount {
	var counts []MinuteCount
	for _, r := range inserted {
		if r.Source != execution.Webhook || r.Status == execution.Rejected {
			continue // a rejection is among the ingress's refusals
		}
		counts = addMinute(counts, MinuteCount{r.AcceptedAt.Truncate(time.Minute), KindAccepted, 1})
	}
	return sortMinutes(counts)
}

// DeduplicatedMinute returns the count of a report of suppressed repeats.
func DeduplicatedMinute(at time.Time, counts map[string]int64) []MinuteCount {
	total := int64(0)
	for _, n := range counts {
		total += n
	}
	if total == 0 {
		return nil
	}
	return []MinuteCount{{at.Truncate(time.Minute), KindDeduplicated, total}}
}

// RefusedMinutes counts refusals by minute and code.
func RefusedMinutes(refusals []Refusal) []MinuteCount {
	var counts []MinuteCount
	for _, r := range refusals {
		counts = addMinute(counts, MinuteCount{r.Minute, KindRefused + r.Code, r.Count})
	}
	return sortMinutes(counts)
}

// addMinute adds a count to counts. It looks at the last element first, because counts that come
// together mostly belong to one minute.
func addMinute(counts []MinuteCount, count MinuteCount) []MinuteCount {
	for i := range slices.Backward(counts) {
		if counts[i].Kind == count.Kind && counts[i].Minute.Equal(count.Minute) {
			counts[i].Count += count.Count
			return counts
		}
	}
	return append(counts, count)
}

func sortMinutes(counts []MinuteCount) []MinuteCount {
	slices.SortFunc(counts, func(a, b MinuteCount) int {
		if c := a.Minute.Compare(b.Minute); c != 0 {
			return c
		}
		return strings.Compare(a.Kind, b.Kind)
	})
	return counts
}

// StorableRefusals returns refusals in their stored form, each workflow, code and minute once, in
// the order of keys.
func StorableRefusals(refusals []Refusal) []Refusal {
	type key struct {
		workflow, code string
		minute         int64
	}
	sums := make(map[key]Refusal, len(refusals))
	for _, r := range refusals {
		r.WorkflowID, r.Code, r.Minute = SanitizeText(r.WorkflowID), SanitizeText(r.Code),
			r.Minute.UTC().Truncate(time.Minute)
		r.Last.At, r.Last.UserAgent = Time(r.Last.At), SanitizeText(r.Last.UserAgent)
		k := key{r.WorkflowID, r.Code, r.Minute.Unix()}
		if have, twice := sums[k]; twice {
			r.Count += have.Count
			if have.Last.At.After(r.Last.At) {
				r.Last = have.Last
			}
		}
		sums[k] = r
	}
	list := make([]Refusal, 0, len(sums))
	for _, r := range sums {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b Refusal) int {
		if c := strings.Compare(a.WorkflowID, b.WorkflowID); c != 0 {
			return c
		}
		if c := strings.Compare(a.Code, b.Code); c != 0 {
			return c
		}
		return a.Minute.Compare(b.Minute)
	})
	return list
}
