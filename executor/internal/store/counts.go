package store

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/hookstart/hookstart/shared/execution"
)

// RequestCounts reads the numbers of accepted, deduplicated, filtered and refused requests, for
// operate. Recording and Reports add to these numbers. The numbers are stored separately from the
// records, and PruneCounts deletes old ones.
type RequestCounts interface {
	// Refusals returns how many requests for one workflow were refused, by code. It counts from the
	// beginning of the minute that contains the time since. The code with the most recent refusal
	// comes first. A workflowID of "" selects the refusals without a workflow.
	Refusals(ctx context.Context, workflowID string, since time.Time) ([]RefusalSum, error)

	// AllRefusals returns one page of the numbers of refused requests, by workflow ("" for none)
	// and code. It counts from the beginning of the minute that contains the time since. The sums
	// are ordered by Last.At, workflow and code, all descending. after is the position of the last
	// sum on the previous page, or zero for the first page. A page has at most limit sums, but
	// AllRefusals reads all rows since that minute for each page.
	AllRefusals(ctx context.Context, since time.Time, after RefusalPosition,
		limit int) ([]WorkflowRefusalSum, error)

	// MinuteCounts returns the counts of all requests by minute and outcome, oldest first. The
	// first minute is the one that contains the time since. Accepted requests are the records
	// inserted by Apply. Deduplicated and filtered requests come from the reports passed to
	// AddDuplicates and AddFilteredRequests. Refused requests are counted by code. MinuteCounts
	// reads only a few rows for each minute, regardless of the number of requests.
	MinuteCounts(ctx context.Context, since time.Time) ([]MinuteCount, error)
}

// RefusalCount is how many of one workflow's requests were refused with one error code in one
// minute.
type RefusalCount struct {
	// WorkflowID is "" if the requests named a workflow that does not exist, or if the ingress was
	// already counting the maximum number of workflows separately.
	WorkflowID string
	Code       string
	Minute     time.Time // the start of the minute
	Count      int64
	Last       RefusedRequest // the most recent of these requests
}

// RefusedRequest describes the most recent request that was refused with a code.
type RefusedRequest struct {
	At        time.Time // when the request was refused
	BodyBytes int64     // the declared body length in bytes; -1 if none was declared
	UserAgent string    // printable ASCII, at most stream.MaxUserAgentBytes bytes; "" means none
}

// RefusalSum is the number of one workflow's requests that were refused with one code.
type RefusalSum struct {
	Code  string
	Count int64
	Last  RefusedRequest // the most recent of these requests
}

// WorkflowRefusalSum is a RefusalSum together with the workflow that the requests named.
type WorkflowRefusalSum struct {
	WorkflowID string // see RefusalCount.WorkflowID
	RefusalSum
}

// RefusalPosition is a position in the list of refusal sums, immediately after the sum with this
// LastAt, WorkflowID and Code. The zero value is the beginning of the list.
type RefusalPosition struct {
	LastAt           time.Time
	WorkflowID, Code string
}

// MinuteCount is the number of requests with one outcome in one minute.
type MinuteCount struct {
	Minute time.Time // the start of the minute
	Kind   string    // the outcome: one of the Kind constants
	Count  int64
}

// The possible values of MinuteCount.Kind.
const (
	// KindAccepted counts requests that started an execution.
	KindAccepted = "accepted"
	// KindDeduplicated counts duplicate requests, which started nothing.
	KindDeduplicated = "deduplicated"
	// KindFiltered counts requests that did not match their node's filter, and started nothing.
	KindFiltered = "filtered"
	// KindRefused is the prefix of the kinds of refused requests. The code of the refusal follows.
	KindRefused = "refused:"
)

// MaxRefusalRows is the approximate maximum number of refusal rows that are kept. The limit is
// needed because anyone can send requests, without authentication, and each request can add a row
// by naming another workflow ID.
const MaxRefusalRows = 200_000

// AcceptedMinuteCounts returns how many of the inserted records were started by webhook requests,
// by minute, oldest first.
func AcceptedMinuteCounts(inserted []Record) []MinuteCount {
	var counts []MinuteCount
	for _, r := range inserted {
		if r.Source != execution.SourceWebhook || r.Status == execution.Rejected {
			continue // the ingress counts rejected requests as refusals
		}
		counts = addMinuteCount(counts, MinuteCount{
			r.AcceptedAt.Truncate(time.Minute),
			KindAccepted, 1,
		})
	}
	return sortMinuteCounts(counts)
}

// DeduplicatedMinuteCount adds up the counts in a report of suppressed duplicates, and returns the
// sum as the count of the minute that contains at. It returns nil if the sum is zero.
func DeduplicatedMinuteCount(at time.Time, counts map[string]int64) []MinuteCount {
	total := int64(0)
	for _, n := range counts {
		total += n
	}
	if total == 0 {
		return nil
	}
	return []MinuteCount{{at.Truncate(time.Minute), KindDeduplicated, total}}
}

// FilteredMinuteCount adds up the counts in a report of filtered requests, and returns the sum as
// the count of the minute that contains at. It returns nil if the sum is zero.
func FilteredMinuteCount(at time.Time, filtered []FilteredSummary) []MinuteCount {
	total := int64(0)
	for _, f := range filtered {
		total += f.Count
	}
	if total == 0 {
		return nil
	}
	return []MinuteCount{{at.Truncate(time.Minute), KindFiltered, total}}
}

// RefusedMinuteCounts returns how many requests were refused in each minute with each code, over
// all workflows.
func RefusedMinuteCounts(refusals []RefusalCount) []MinuteCount {
	var counts []MinuteCount
	for _, r := range refusals {
		counts = addMinuteCount(counts, MinuteCount{r.Minute, KindRefused + r.Code, r.Count})
	}
	return sortMinuteCounts(counts)
}

// addMinuteCount adds count to the element of counts with the same minute and kind, or appends it
// if there is none. It searches from the end, because consecutive counts mostly belong to the same
// minute.
func addMinuteCount(counts []MinuteCount, count MinuteCount) []MinuteCount {
	for i := range slices.Backward(counts) {
		if counts[i].Kind == count.Kind && counts[i].Minute.Equal(count.Minute) {
			counts[i].Count += count.Count
			return counts
		}
	}
	return append(counts, count)
}

func sortMinuteCounts(counts []MinuteCount) []MinuteCount {
	slices.SortFunc(counts, func(a, b MinuteCount) int {
		if c := a.Minute.Compare(b.Minute); c != 0 {
			return c
		}
		return strings.Compare(a.Kind, b.Kind)
	})
	return counts
}

// StorableRefusals returns refusals in stored form: merged into one entry for each workflow, code
// and minute, and sorted by these fields.
func StorableRefusals(refusals []RefusalCount) []RefusalCount {
	type key struct {
		workflow, code string
		minute         int64
	}
	sums := make(map[key]RefusalCount, len(refusals))
	for _, r := range refusals {
		r.WorkflowID, r.Code, r.Minute = SanitizeText(r.WorkflowID), SanitizeText(r.Code),
			r.Minute.UTC().Truncate(time.Minute)
		r.Last.At, r.Last.UserAgent = StoredTime(r.Last.At), SanitizeText(r.Last.UserAgent)
		k := key{r.WorkflowID, r.Code, r.Minute.Unix()}
		if have, twice := sums[k]; twice {
			r.Count += have.Count
			if have.Last.At.After(r.Last.At) {
				r.Last = have.Last
			}
		}
		sums[k] = r
	}
	list := make([]RefusalCount, 0, len(sums))
	for _, r := range sums {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b RefusalCount) int {
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
