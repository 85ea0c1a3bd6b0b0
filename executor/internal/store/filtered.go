package store

import (
	"slices"
	"time"
)

// MaxFilteredRequests is the maximum number of filtered requests that are kept for each trigger
// node. A request is filtered if it does not match the node's filter.
const MaxFilteredRequests = 20

// FilteredSummary counts the requests that did not match the filter of one trigger node, and
// describes the most recent ones. Its JSON is part of backups: see BackupPart.
type FilteredSummary struct {
	WorkflowID, NodeID string

	Count int64             // number of these requests since the node was created
	Last  []FilteredRequest // newest first, at most MaxFilteredRequests
}

// FilteredRequest describes a request that did not match a filter. Nothing else of the request is
// stored.
type FilteredRequest struct {
	At         time.Time // when the request arrived
	DeliveryID string    `json:",omitempty"` // "" if it had none
	Place      string    // part of the request that did not meet its condition, such as ptr:/a
}

// StorableFiltered returns filtered in stored form: merged into one entry per node, and sorted by
// node. Because every writer locks the rows in this order, concurrent writers cannot deadlock.
func StorableFiltered(filtered []FilteredSummary) []FilteredSummary {
	type node struct{ workflowID, nodeID string }
	byNode := map[node]FilteredSummary{}
	for _, f := range filtered {
		at := node{SanitizeText(f.WorkflowID), SanitizeText(f.NodeID)}
		last := make([]FilteredRequest, len(f.Last))
		for i, r := range f.Last {
			last[i] = FilteredRequest{
				StoredTime(r.At),
				SanitizeText(r.DeliveryID),
				SanitizeText(r.Place),
			}
		}
		have := byNode[at]
		byNode[at] = FilteredSummary{
			at.workflowID, at.nodeID, have.Count + f.Count, NewestFiltered(have.Last, last),
		}
	}
	all := make([]FilteredSummary, 0, len(byNode))
	for _, f := range byNode {
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b FilteredSummary) int {
		return slices.Compare([]string{a.WorkflowID, a.NodeID}, []string{b.WorkflowID, b.NodeID})
	})
	return all
}

// NewestFiltered merges two lists and returns the newest requests in them, newest first, at
// most MaxFilteredRequests. Of requests with equal times, the ones in left come first.
func NewestFiltered(left, right []FilteredRequest) []FilteredRequest {
	all := slices.Concat(left, right)
	slices.SortStableFunc(all, func(a, b FilteredRequest) int { return b.At.Compare(a.At) })
	return all[:min(len(all), MaxFilteredRequests)]
}
