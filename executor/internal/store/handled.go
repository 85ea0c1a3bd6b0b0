package store

import (
	"cmp"
	"context"
	"slices"
)

// HandledMessages keeps which stream messages are recorded or put aside; Recording adds them. With
// it the recorder detects that the database has lost transactions, for example because an older
// backup or a lagging standby has replaced it.
type HandledMessages interface {
	// HandledRanges returns which messages of a stream have been recorded or put aside: the
	// ranges of all batches committed to this database, merged and in order. A database that has
	// lost transactions has also lost their ranges. created identifies the stream; ranges with
	// another identity are deleted.
	HandledRanges(ctx context.Context, stream, created string) ([]HandledRange, error)

	// ForgetHandled removes the messages at and after a sequence from the ranges that HandledRanges
	// returns for a stream.
	ForgetHandled(ctx context.Context, stream, created string, from uint64) error

	// Reconnected returns a channel that receives a value when the store has opened its first
	// connection, or one that leads to a different server or database than the previous one, or to
	// a server that was started again. Several connections may cause a single value. A nil channel
	// means that this cannot happen.
	Reconnected() <-chan struct{}
}

// HandledRange is a range of adjacent stream messages that have been handled, that is, recorded or
// put aside.
type HandledRange struct {
	Stream string // the name of the stream
	// Created identifies the stream. A stream that is deleted and created again keeps its name, but
	// its sequences start over.
	Created     string
	First, Last uint64 // sequences, both inclusive
}

// AppendRanges appends a stream's sequences to ranges, and joins adjacent ones. It sorts sequences
// in place.
func AppendRanges(
	ranges []HandledRange,
	stream, created string,
	sequences []uint64,
) []HandledRange {
	slices.Sort(sequences)
	for i, sequence := range sequences {
		if i > 0 && sequence <= ranges[len(ranges)-1].Last+1 {
			ranges[len(ranges)-1].Last = sequence
			continue
		}
		ranges = append(ranges, HandledRange{
			Stream:  stream,
			Created: created,
			First:   sequence,
			Last:    sequence,
		})
	}
	return ranges
}

// MergeRanges sorts ranges of one stream and joins those that overlap or are adjacent. It reuses
// the slice.
func MergeRanges(ranges []HandledRange) []HandledRange {
	slices.SortFunc(ranges, func(a, b HandledRange) int { return cmp.Compare(a.First, b.First) })
	merged := ranges[:0]
	for _, r := range ranges {
		if last := len(merged) - 1; last >= 0 && r.First <= merged[last].Last+1 {
			merged[last].Last = max(merged[last].Last, r.Last)
			continue
		}
		merged = append(merged, r)
	}
	return merged
}

// RangesBefore returns the parts of merged ranges that are before the given sequence (exclusive).
func RangesBefore(ranges []HandledRange, sequence uint64) []HandledRange {
	var before []HandledRange
	for _, r := range ranges {
		if r.First < sequence {
			r.Last = min(r.Last, sequence-1)
			before = append(before, r)
		}
	}
	return before
}
