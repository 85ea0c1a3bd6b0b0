package store

import "github.com/hookstart/hookstart/shared/execution"

// Origin holds the values that all records of one trigger node, token and sender have in common.
// Drivers store each origin once, as a row of a dimension table, and the records contain only the
// row's number.
type Origin struct {
	AccountID, WorkflowID, NodeID, Queue string

	Source   execution.Source
	TokenID  string // the token of the request; "" if the execution was not started by a request
	Sender   string // the preset of the node's sender; "" for none
	Verified bool   // whether the sender's signature or secret was verified
}

// Origin returns the record's origin, that is, the fields that it shares with other records of its
// trigger node.
func (r Record) Origin() Origin {
	return Origin{
		r.AccountID, r.WorkflowID, r.NodeID, r.Queue, r.Source, r.TokenID, r.Sender, r.Verified,
	}
}

// HasIDFromDelivery reports whether the record's ID is a hash of its workflow, node and delivery
// ID. It does not matter whether the delivery ID comes from a header, the body, signed content or
// an operator event. To find such a record by its delivery ID, drivers compute its ID again. They
// therefore index only the delivery IDs of all other records.
func (r Record) HasIDFromDelivery() bool {
	if r.DeliveryID == "" {
		return false
	}
	computed := execution.IDForDelivery
	if r.Status == execution.Rejected {
		computed = execution.RejectedIDForDelivery
	}
	if r.ID == computed(r.WorkflowID, r.NodeID, r.DeliveryID) {
		return true // the most frequent case, checked before the other inputs are built
	}
	for _, key := range possibleHashInputs(r.DeliveryID) {
		if r.ID == computed(r.WorkflowID, r.NodeID, key) {
			return true
		}
	}
	return false
}

// possibleHashInputs returns the strings from which the execution ID of a delivery may have been
// computed, one for each possible source of the delivery ID: a header, the body, signed content, or
// an operator event.
func possibleHashInputs(deliveryID string) [4]string {
	return [...]string{
		deliveryID, execution.MarkDerivedID(deliveryID), execution.MarkSignedID(deliveryID),
		execution.MarkEventID(deliveryID),
	}
}

// TriggerNode identifies a trigger node at which requests were recorded, even if their records have
// been deleted since.
type TriggerNode struct{ WorkflowID, NodeID string }

// PossibleExecutionIDs returns every computed ID that an execution with the given delivery ID can
// have at one of the nodes: one for each possible source of the delivery ID, both for accepted and
// for rejected requests.
func PossibleExecutionIDs(nodes []TriggerNode, deliveryID string) []string {
	ids := make([]string, 0, 8*len(nodes))
	for _, n := range nodes {
		for _, id := range possibleHashInputs(deliveryID) {
			ids = append(ids, execution.IDForDelivery(n.WorkflowID, n.NodeID, id),
				execution.RejectedIDForDelivery(n.WorkflowID, n.NodeID, id))
		}
	}
	return ids
}
