package store

import (
	"context"
	"slices"
	"time"
)

// Senders reads what Reports has added about the senders of trigger nodes and about requests that
// did not match a node's filter. operate and package events use it.
//
// operate also uses it to delete data that no longer applies: the data of a node when its sender is
// changed or removed, and the data of a workflow when it moves to another account, or when a new
// workflow gets the ID of a deleted one.
type Senders interface {
	// SenderActivity returns what requests have shown so far about the sender of one node. If there
	// were no requests, only WorkflowID and NodeID are set in the result.
	SenderActivity(ctx context.Context, workflowID, nodeID string) (SenderActivity, error)

	// RefusedSenders returns the SenderActivity of each sender whose requests have been refused.
	RefusedSenders(ctx context.Context) ([]SenderActivity, error)

	// ForgetSender deletes the SenderActivity of one node.
	ForgetSender(ctx context.Context, workflowID, nodeID string) error

	// ForgetWorkflowReports deletes what Reports has added about a workflow and its nodes:
	// refusals, observations of senders, and filtered requests. The per-minute counts are kept,
	// because they are not broken down by workflow.
	ForgetWorkflowReports(ctx context.Context, workflowID string) error

	// FilteredSummary returns how many requests have not matched the filter of one node so far,
	// and the most recent of them. It returns the zero value if there were none.
	FilteredSummary(ctx context.Context, workflowID, nodeID string) (FilteredSummary, error)
}

// SenderActivity holds what requests have shown about the sender that is configured on one trigger
// node. Its JSON is part of backups: see BackupPart.
type SenderActivity struct {
	WorkflowID, NodeID string

	VerifiedAt  time.Time `json:",omitzero"` // time of the last verified request; zero means none
	HandshakeAt time.Time `json:",omitzero"` // time of the last handshake; zero means none

	// RefusedAt is when a request was last refused because of its signature, or zero if none was.
	RefusedAt     time.Time `json:",omitzero"`
	RefusedCode   string    // the code of that refusal
	RefusedReason string    // the reason for that refusal, for people

	Deliveries int64 // number of stored deliveries
	WithoutID  int64 // number of stored deliveries without a delivery ID
	Refused    int64 // number of requests refused because of their signature
}

// StorableSenderActivity prepares activities for storage: it merges all activities of the same node
// into one and sorts the result by node. Because every writer locks the rows in this order,
// concurrent writers cannot deadlock.
func StorableSenderActivity(activities []SenderActivity) []SenderActivity {
	type node struct{ workflowID, nodeID string }
	byNode := map[node]SenderActivity{}
	for _, s := range activities {
		s.WorkflowID, s.NodeID = SanitizeText(s.WorkflowID), SanitizeText(s.NodeID)
		s.VerifiedAt, s.HandshakeAt, s.RefusedAt = storedTimeOrZero(s.VerifiedAt),
			storedTimeOrZero(s.HandshakeAt), storedTimeOrZero(s.RefusedAt)
		s.RefusedCode, s.RefusedReason = SanitizeText(s.RefusedCode), SanitizeText(s.RefusedReason)
		at := node{s.WorkflowID, s.NodeID}
		byNode[at] = byNode[at].merge(s)
	}
	all := make([]SenderActivity, 0, len(byNode))
	for _, s := range byNode {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b SenderActivity) int {
		return slices.Compare([]string{a.WorkflowID, a.NodeID}, []string{b.WorkflowID, b.NodeID})
	})
	return all
}

// merge returns the combined activity of s and of later, which was reported after s.
func (s SenderActivity) merge(later SenderActivity) SenderActivity {
	merged := later
	if s.RefusedAt.After(later.RefusedAt) {
		merged.RefusedAt, merged.RefusedCode, merged.RefusedReason = s.RefusedAt, s.RefusedCode,
			s.RefusedReason
	}
	if s.VerifiedAt.After(later.VerifiedAt) {
		merged.VerifiedAt = s.VerifiedAt
	}
	if s.HandshakeAt.After(later.HandshakeAt) {
		merged.HandshakeAt = s.HandshakeAt
	}
	merged.Deliveries += s.Deliveries
	merged.WithoutID += s.WithoutID
	merged.Refused += s.Refused
	return merged
}

// storedTimeOrZero is like StoredTime, but returns the zero time unchanged.
func storedTimeOrZero(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return StoredTime(t)
}
