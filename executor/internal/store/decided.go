package store

import (
	"cmp"
	"slices"
)

// Range is a range of adjacent messages of a stream that are decided: they are recorded, or
// quarantined.
type Range struct {
	Stream string // the name of the stream
	// Created identifies the stream: a stream that is deleted and created again has the same name,
	// but its sequences start again.
	Created     string
	First, Last uint64 // sequences, both included
}

// RangesOf adds the sequences of some messages of a stream to ranges. It sorts the sequences.
func RangesOf(ranges []Range, stream, created string, sequences []uint64) []Range {
	slices.Sort(sequences)
	for i, sequence := range sequences {
		if i > 0 && sequence <= ranges[len(ranges)-1].Last+1 {
			ranges[len(ranges)-1].Last = sequence
			continue
		}
		ranges = append(ranges, Range{
			Stream:  stream,
			Created: created,
			First:   sequence,
			Last:    sequence,
		})
	}
	return ranges
}

// Merge sorts ranges of one stream, and joins those that overlap or are adjacent.
func Merge(ranges []Range) []Range {
	slices.SortFunc(ranges, func(a, b Range) int { return cmp.Compare(a.First, b.First) })
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

// RangesBefore returns the part of merged ranges before a sequence.
func RangesBefore(ranges []Range, sequence uint64) []Range {
	var before []Range
	for _, r := range ranges {
		if r.First < sequence {
			r.Last = min(r.Last, sequence-1)
			before = append(before, r)
		}
	}
	return before
}
