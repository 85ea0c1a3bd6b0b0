package store

import (
	"cmp"
	"context"
	"slices"
)

// HandledMessages keeps track of which stream messages have been handled, that is, recorded or put
// aside. Recording adds them. If the database has lost transactions, for example because an older
// backup or a lagging standby has replaced it, HandledMessages lacks the messages of these
// transactions. The recorder then knows which messages to record again.
type HandledMessages interface {
	// HandledRanges returns the merged and sorted ranges of a stream's messages that have been
	// handled. They cover every batch that was committed to this database, except transactions that
	// the database has lost. created is the stream's creation time: see HandledRange.StreamCreated.
	// HandledRanges deletes the ranges of earlier streams with the same name.
	HandledRanges(ctx context.Context, stream, created string) ([]HandledRange, error)

	// ForgetHandled makes the messages of a stream with the given sequence or a higher one count as
	// not handled.
	ForgetHandled(ctx context.Context, stream, created string, from uint64) error

	// Reconnected returns a channel that receives a value when the store has connected to what may
	// be another copy of the data: on its first connection, on a connection to another server or
	// database than before, and on a connection to a server that was restarted. Several such
	// connections may cause a single value. The channel is nil if the store never reconnects.
	Reconnected() <-chan struct{}
}

// HandledRange is a range of adjacent stream messages that have been handled, that is, recorded or
// put aside.
type HandledRange struct {
	Stream string // the name of the stream
	// StreamCreated is the stream's creation time as text. It is needed because a stream that is
	// deleted and created again keeps its name, but its sequences start over.
	StreamCreated string
	First, Last   uint64 // sequences, both inclusive
}

// AppendSequences converts sequences of one stream to ranges, and appends them to ranges. Adjacent
// sequences share one range. AppendSequences sorts sequences in place.
func AppendSequences(
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
			Stream:        stream,
			StreamCreated: created,
			First:         sequence,
			Last:          sequence,
		})
	}
	return ranges
}

// MergeRanges sorts the ranges of one stream and merges those that overlap or are adjacent. It
// reuses the slice: the result is a shorter slice of the same array.
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

// RangesBefore returns the parts of ranges that are below the given sequence.
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
