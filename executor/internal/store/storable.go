package store

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hookstart/hookstart/shared/execution"
)

// Text is s as every driver stores it: NUL and what is not UTF-8 become U+FFFD, because PostgreSQL refuses both, and runners' error
// texts can hold anything. Keys are looked up as Text, too.
func Text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// Texts is Text of each.
func Texts(all []string) []string {
	stored := make([]string, len(all))
	for i, s := range all {
		stored[i] = Text(s)
	}
	return stored
}

// Time is t as it is stored: UTC, whole microseconds, the rest cut off.
func Time(t time.Time) time.Time {
	return t.UTC().Truncate(time.Microsecond)
}

// Bound is the first storable time that is not before t: stored times before one are before the other.
func Bound(t time.Time) time.Time {
	cut := Time(t)
	if cut.Before(t) {
		return cut.Add(time.Microsecond)
	}
	return cut
}

// Sequence is a stream sequence as it is stored: databases have no unsigned 64 bits.
func Sequence(n uint64) int64 {
	if n > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(n)
}

// Storable returns the batch with its values as they are stored (those of Audit become so when they are). Unreadable and
// Audit are sorted by their keys, so that executors that write the same rows at the same time wait for each other in one
// order and never in a circle. New stays in the order of arrival: package postgres sorts it for the same reason, but SQLite
// has one writer, and inserts a record in that order with a fifth less CPU. The caller's batch is not touched. Output is
// bytes, kept as they are.
func (b Batch) Storable() Batch {
	s := Batch{
		Recovered:  slices.Clone(b.Recovered),
		New:        make([]Record, len(b.New)),
		Progress:   make([]execution.Progress, len(b.Progress)),
		Unreadable: make([]Unreadable, len(b.Unreadable)),
		Audit:      slices.Clone(b.Audit),
	}
	for i, r := range b.New {
		s.New[i] = r.storable()
	}
	for i, p := range b.Progress {
		// The ID stays: the caller gets it back in Applied.Unknown and knows it as it was.
		p.At, p.StartedAt, p.Error = Time(p.At), Time(p.StartedAt), Text(p.Error)
		s.Progress[i] = p
	}
	for i, u := range b.Unreadable {
		u.Subject, u.Reason, u.At = Text(u.Subject), Text(u.Reason), Time(u.At)
		s.Unreadable[i] = u
	}
	slices.SortStableFunc(s.Unreadable, func(a, b Unreadable) int {
		return cmp.Or(cmp.Compare(a.StreamSequence, b.StreamSequence), strings.Compare(a.Subject, b.Subject))
	})
	slices.SortStableFunc(s.Audit, func(a, b AuditEntry) int { return strings.Compare(a.ID, b.ID) })
	return s
}

func (r Record) storable() Record {
	for _, text := range []*string{
		&r.ID, &r.AccountID, &r.WorkflowID, &r.NodeID, &r.Queue, (*string)(&r.Source), (*string)(&r.Status),
		&r.DeliveryID, &r.RerunOf, &r.ReplayOf, &r.RequeuedAs, &r.TokenID, &r.Sender, &r.ContentType, &r.Error,
	} {
		*text = Text(*text)
	}
	if len(r.Output) == 0 {
		r.Output = nil
	}
	for _, t := range []*time.Time{&r.AcceptedAt, &r.RecordedAt, &r.StartedAt, &r.FinishedAt, &r.DismissedAt} {
		*t = Time(*t)
	}
	return r
}

// SubjectPattern is the LIKE pattern of the subjects of one workflow's messages: five parts, so each % is one; the escape is \.
func SubjectPattern(workflowID string) string {
	escaped := strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(Text(workflowID))
	return "%.%.%." + escaped + ".%"
}

// LastWithPrefix sorts after every text that begins with a prefix, and before all others that sort after those.
func LastWithPrefix(prefix string) string { return prefix + string(utf8.MaxRune) }
