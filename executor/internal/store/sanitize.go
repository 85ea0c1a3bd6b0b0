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

// SanitizeText returns s as every driver stores it: each NUL and each invalid UTF-8 sequence
// becomes U+FFFD. PostgreSQL rejects NULs and invalid UTF-8, and the error texts of runners can
// contain anything. Sanitize the texts in queries as well, so that they match the stored texts.
func SanitizeText(s string) string {
	if utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// SanitizeTexts applies SanitizeText to each text.
func SanitizeTexts(all []string) []string {
	stored := make([]string, len(all))
	for i, s := range all {
		stored[i] = SanitizeText(s)
	}
	return stored
}

// maxSubjectBytes is the maximum length, in bytes, of the stored subject of a message put aside.
// NATS accepts subjects that are too long for a PostgreSQL index.
const maxSubjectBytes = 1_000

// StoredSubject returns the subject of a message put aside as it is stored: sanitized, and cut off
// after maxSubjectBytes.
func StoredSubject(subject string) string {
	stored := SanitizeText(subject)
	if len(stored) > maxSubjectBytes {
		stored = strings.ToValidUTF8(stored[:maxSubjectBytes], "")
	}
	return stored
}

// StoredTime returns t as it is stored: in UTC, truncated to microseconds.
func StoredTime(t time.Time) time.Time {
	return t.UTC().Truncate(time.Microsecond)
}

// CeilTime returns the first storable time that is not before t. Queries compare stored times with
// the result instead of t: a stored time is before the result if and only if it is before t.
func CeilTime(t time.Time) time.Time {
	cut := StoredTime(t)
	if cut.Before(t) {
		return cut.Add(time.Microsecond)
	}
	return cut
}

// StoredSequence returns a stream sequence as it is stored: at most the largest int64, because the
// databases have no unsigned 64-bit integers.
func StoredSequence(n uint64) int64 {
	if n > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(n)
}

// storedAttempt returns an attempt number as it is stored: at most the largest int32, because the
// column has 32 bits and runners can report any number.
func storedAttempt(n int) int { return min(n, math.MaxInt32) }

// Sanitized returns a copy of the batch with its values in stored form, except for Audit, whose
// values are converted when they are stored, and Output, which holds bytes that are stored
// unchanged.
//
// Sanitized sorts PutAside and Audit by key, so that concurrent executors lock the same rows in the
// same order and cannot deadlock. NewRecords keeps the order of arrival: package postgres sorts it
// later, for the same reason, but SQLite has a single writer and needs a fifth less CPU time to
// insert records in the order of arrival.
func (b Batch) Sanitized() Batch {
	s := Batch{
		RecoveredAside: slices.Clone(b.RecoveredAside),
		NewRecords:     make([]Record, len(b.NewRecords)),
		Progress:       make([]execution.Progress, len(b.Progress)),
		PutAside:       make([]AsideMessage, len(b.PutAside)),
		Audit:          slices.Clone(b.Audit),
		Handled:        slices.Clone(b.Handled),
	}
	for i, r := range b.NewRecords {
		s.NewRecords[i] = r.sanitized()
	}
	for i, p := range b.Progress {
		// Keep p.ID as it is, because ApplyResult.UnrecordedIDs returns it to the caller.
		p.At, p.StartedAt = StoredTime(p.At), StoredTime(p.StartedAt)
		p.Attempt, p.Error = storedAttempt(p.Attempt), SanitizeText(p.Error)
		s.Progress[i] = p
	}
	for i, u := range b.PutAside {
		u.Subject, u.Reason, u.At = StoredSubject(u.Subject), SanitizeText(u.Reason),
			StoredTime(u.At)
		s.PutAside[i] = u
	}
	slices.SortStableFunc(s.PutAside, func(a, b AsideMessage) int {
		return cmp.Or(cmp.Compare(a.StreamSequence, b.StreamSequence),
			strings.Compare(a.Subject, b.Subject))
	})
	slices.SortStableFunc(s.Audit, func(a, b AuditEntry) int { return strings.Compare(a.ID, b.ID) })
	return s
}

func (r Record) sanitized() Record {
	for _, text := range []*string{
		&r.ID, &r.AccountID, &r.WorkflowID, &r.NodeID, &r.Queue, (*string)(&r.Source),
		(*string)(&r.Status),
		&r.DeliveryID, &r.RerunOf, &r.ReplayOf, &r.RequeuedAs, &r.TokenID, &r.Sender,
		&r.ContentType, &r.Error,
	} {
		*text = SanitizeText(*text)
	}
	r.Attempts = storedAttempt(r.Attempts)
	if len(r.Output) == 0 {
		r.Output = nil
	}
	for _, t := range []*time.Time{
		&r.AcceptedAt, &r.RecordedAt, &r.StartedAt, &r.FinishedAt, &r.DismissedAt,
		&r.CancelRequestedAt,
	} {
		*t = StoredTime(*t)
	}
	return r
}

// SubjectLikePatterns returns the LIKE patterns that match the subjects of one workflow's messages
// in the shared streams. ordered is for start messages with an order key
// (executions.ordered.<queue>.<lane>.<workflow>.<node>), and others for all other messages
// (executions.<kind>.<queue>.<workflow>.<rest>). The escape character is \. Match a subject only
// against the pattern of its kind: others, for example, would also match a start message with an
// order key whose lane equals the workflow's ID.
func SubjectLikePatterns(workflowID string) (ordered, others string) {
	escaped := escapedPattern(workflowID)
	return "%.%.%.%." + escaped + ".%", "%.%.%." + escaped + ".%"
}

// OwnStreamLikePatterns returns the LIKE patterns that match the subjects of one workflow's start
// messages and rejections in a queue's own stream
// (executions.queue.<queue>.<kind>.<workflow>.<node>, and
// executions.queue.<queue>.ordered.<lane>.<workflow>.<node> for start messages with an order key).
func OwnStreamLikePatterns(workflowID string) [3]string {
	const queue = "executions.queue.%"
	escaped := escapedPattern(workflowID)
	return [3]string{
		queue + ".start." + escaped + ".%", queue + ".rejected." + escaped + ".%",
		queue + ".ordered.%." + escaped + ".%",
	}
}

// escapedPattern returns text in stored form, with the wildcards and the escape character of LIKE
// escaped.
func escapedPattern(text string) string {
	return strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(SanitizeText(text))
}

// PrefixUpperBound returns the exclusive upper bound of a range query for the texts that begin with
// prefix: prefix <= text < bound. The range contains exactly these texts, except for a text in
// which U+10FFFF, which is not a valid character, directly follows the prefix.
func PrefixUpperBound(prefix string) string { return prefix + string(utf8.MaxRune) }
