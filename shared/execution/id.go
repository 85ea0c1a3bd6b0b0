package execution

import "encoding/hex"

// IDForDelivery returns the ID of the execution that a delivery starts. It is the same for the same
// workflow, node and delivery ID, so that a repeat is recognised without a look-up. It is a UUID of
// version 8 (RFC 9562) made from a SHA-256.
func IDForDelivery(workflowID, nodeID, deliveryID string) string {
	return hashUUID("start", workflowID, nodeID, deliveryID)
}

// DerivedDelivery marks a delivery ID that comes from the body or is a hash, so that it cannot
// collide with one from a header. Only the functions that make execution IDs use the result.
func DerivedDelivery(deliveryID string) string { return "\x00" + deliveryID }

// SignedDelivery marks a delivery ID that is under the sender's signature, so that it cannot
// collide with any other: a header's, or a derived one, which has no NUL. Only the functions that
// make execution IDs use the result.
func SignedDelivery(deliveryID string) string { return "\x00\x00" + deliveryID }

// EventDelivery marks the ID of an operator event, so that it cannot collide with the delivery ID
// of a request. Only the functions that make execution IDs use the result.
func EventDelivery(eventID string) string { return "\x00\x00\x00" + eventID }

// RejectedIDForDelivery returns the ID of the record of a delivery to an inactive workflow. It
// differs from IDForDelivery, so that the same delivery can still start an execution once the
// workflow is active.
func RejectedIDForDelivery(workflowID, nodeID, deliveryID string) string {
	return hashUUID("rejected", workflowID, nodeID, deliveryID)
}

// IDForRequeue returns the ID of the execution that a requeue starts. It is the same for the same
// original, so that requeueing twice starts one execution.
func IDForRequeue(executionID string) string {
	return hashUUID("requeue", "", "", executionID)
}

// IDForReplay returns the ID of the execution that a replay with an idempotency key starts. It is
// the same for the same original and key.
func IDForReplay(executionID, key string) string {
	return hashUUID("replay", executionID, "", key)
}

// hashUUID hashes its parts. Only the last part can contain a NUL, so different lists of parts
// never join to the same text.
func hashUUID(kind, workflowID, nodeID, deliveryID string) string {
	const nul = "\x00"
	sum := SHA256("hookstart", nul, kind, nul, workflowID, nul, nodeID, nul, deliveryID)
	sum[6] = sum[6]&0x0f | 0x80 // version 8
	sum[8] = sum[8]&0x3f | 0x80 // RFC 9562 variant

	var id [36]byte
	hex.Encode(id[0:8], sum[0:4])
	id[8] = '-'
	hex.Encode(id[9:13], sum[4:6])
	id[13] = '-'
	hex.Encode(id[14:18], sum[6:8])
	id[18] = '-'
	hex.Encode(id[19:23], sum[8:10])
	id[23] = '-'
	hex.Encode(id[24:36], sum[10:16])
	return string(id[:])
}
