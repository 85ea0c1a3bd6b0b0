package store

import "github.com/hookstart/hookstart/shared/execution"

// Origin holds what the records of one trigger node, token and sender have in common. Drivers store
// each origin once, as a row of a dimension table, and its number in the records.
type Origin struct {
	AccountID, WorkflowID, NodeID, Queue string

	Source   execution.Source
	TokenID  string // the token of the request; "" means that no request started the execution
	Sender   string // the preset of the node's sender; "" means that it had none
	Verified bool   // the sender's signature or secret was verified
}

// Origin returns the origin of the record.
func (r Record) Origin() Origin {
	return Origin{
		r.AccountID, r.WorkflowID, r.NodeID, r.Queue, r.Source, r.TokenID, r.Sender, r.Verified,
	}
}

// HasComputedID reports whether the ID is the hash of the delivery ID, whether that came from a
// header, from the body, from under the sender's signature, or is an operator event's. Such a
// record can be found by its ID if workflow, node and delivery ID are known, so drivers have an
// index only of the other delivery IDs.
func (r Record) HasComputedID() bool {
	if r.DeliveryID == "" {
		return false
	}
	computed := execution.IDForDelivery
	if r.Status == execution.Rejected {
		computed = execution.RejectedIDForDelivery
	}
	for _, key := range deliveryKeys(r.DeliveryID) {
		if r.ID == computed(r.WorkflowID, r.NodeID, key) {
			return true
		}
	}
	return false
}

// deliveryKeys returns the texts from which an execution ID is computed for a delivery ID: in a
// header, in a body, under a signature, and of an operator event.
func deliveryKeys(deliveryID string) [4]string {
	return [...]string{
		deliveryID, execution.DerivedDelivery(deliveryID), execution.SignedDelivery(deliveryID),
		execution.EventDelivery(deliveryID),
	}
}

// Node is a trigger node that has, or had, a record.
type Node struct{ WorkflowID, NodeID string }

// DeliveryIDs returns the computed IDs of records with a delivery ID at any of the nodes.
func DeliveryIDs(nodes []Node, deliveryID string) []string {
	ids := make([]string, 0, 8*len(nodes))
	for _, n := range nodes {
		for _, id := range deliveryKeys(deliveryID) {
			ids = append(ids, execution.IDForDelivery(n.WorkflowID, n.NodeID, id),
				execution.RejectedIDForDelivery(n.WorkflowID, n.NodeID, id))
		}
	}
	return ids
}
