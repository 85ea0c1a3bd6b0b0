package execution

import "encoding/hex"

// IDForDelivery is the ID of the execution that a delivery starts: the same for the same workflow, node and delivery ID, so that a
// repeat is recognised without a look-up. It is a UUID of version 8 (RFC 9562) made of a SHA-256.
func IDForDelivery(workflowID, nodeID, deliveryID string) string {
	return hashUUID("start", workflowID, nodeID, deliveryID)
}

// DerivedDelivery stands for a delivery ID that was read in the body or is a hash, where an execution's ID is made: no header has it.
func DerivedDelivery(deliveryID string) string { return "\x00" + deliveryID }

// SignedDelivery stands for a delivery ID that is under the sender's signature, where an execution's ID is made: no other ID
// has it, of a header or of a body, since a derived one has no NUL.
func SignedDelivery(deliveryID string) string { return "\x00\x00" + deliveryID }

// RejectedIDForDelivery is the ID of the record of a delivery to an inactive workflow. It differs from IDForDelivery: the same
// delivery can still start an execution once the workflow is active.
func RejectedIDForDelivery(workflowID, nodeID, deliveryID string) string {
	return hashUUID("rejected", workflowID, nodeID, deliveryID)
}

// IDForRequeue is the ID of the execution that a requeue starts: the same for the same original, so that requeueing twice starts one.
func IDForRequeue(executionID string) string {
	return hashUUID("requeue", "", "", executionID)
}

// IDForReplay is the ID of the execution that a replay with an idempotency key starts: the same for the same original and key.
func IDForReplay(executionID, key string) string {
	return hashUUID("replay", executionID, "", key)
}

// hashUUID hashes its parts. Only the last one can hold a NUL, so no two lists of parts are joined to the same text.
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
