package store

import "github.com/hookstart/hookstart/shared/execution"

// Origin is what the records of one trigger node, token and sender have in common. Drivers keep each once, and its number in records.
type Origin struct {
	AccountID, WorkflowID, NodeID, Queue string
	Source                               execution.Source
	TokenID                              string
	Sender                               string
	Verified                             bool
}

// Origin is that of the record.
func (r Record) Origin() Origin {
	return Origin{r.AccountID, r.WorkflowID, r.NodeID, r.Queue, r.Source, r.TokenID, r.Sender, r.Verified}
}

// HasComputedID says whether the ID is the hash of the delivery ID, of a header, of the sender's body, or under its signature, so that
// who knows workflow, node and delivery ID finds the record by its ID. Drivers keep an index of the other delivery IDs only.
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

// deliveryKeys returns what an ID is computed of for a delivery ID in a header, in a body, and under a signature.
func deliveryKeys(deliveryID string) [3]string {
	return [...]string{deliveryID, execution.DerivedDelivery(deliveryID), execution.SignedDelivery(deliveryID)}
}

// Node is a trigger node of which there is a record, or was one.
type Node struct{ WorkflowID, NodeID string }

// DeliveryIDs are the IDs that records of a delivery ID have whose ID is computed, at any of the nodes.
func DeliveryIDs(nodes []Node, deliveryID string) []string {
	ids := make([]string, 0, 6*len(nodes))
	for _, n := range nodes {
		for _, id := range deliveryKeys(deliveryID) {
			ids = append(ids, execution.IDForDelivery(n.WorkflowID, n.NodeID, id), execution.RejectedIDForDelivery(n.WorkflowID, n.NodeID, id))
		}
	}
	return ids
}
