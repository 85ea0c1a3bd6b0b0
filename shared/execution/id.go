package execution

import "encoding/hex"

// IDForDelivery returns the ID of the execution that a delivery starts. The same workflow, node and
// delivery ID always give the same result, so a repeated delivery is recognized without a database.
// The ID is a version 8 UUID (RFC 9562), made from a SHA-256 hash.
func IDForDelivery(workflowID, nodeID, deliveryID string) string {
	return hashUUID("start", workflowID, nodeID, deliveryID)
}

// MarkDerivedID marks a delivery ID that comes from the body or is a hash. The mark keeps it from
// colliding with a delivery ID from a header. Pass the result only to IDForDelivery and
// RejectedIDForDelivery.
func MarkDerivedID(deliveryID string) string { return "\x00" + deliveryID }

// MarkSignedID marks a delivery ID that is covered by the sender's signature. The mark keeps it
// from colliding with any other delivery ID, whether from a header or derived. Pass the result only
// to IDForDelivery and RejectedIDForDelivery.
func MarkSignedID(deliveryID string) string { return "\x00\x00" + deliveryID }

// MarkEventID marks the ID of an operator event. The mark keeps it from colliding with the
// delivery ID of a request. Pass the result only to IDForDelivery and RejectedIDForDelivery.
func MarkEventID(eventID string) string { return "\x00\x00\x00" + eventID }

// RejectedIDForDelivery returns the ID of the execution record of a delivery to an inactive
// workflow. It differs from the result of IDForDelivery, so the same delivery can still start an
// execution once the workflow is active.
func RejectedIDForDelivery(workflowID, nodeID, deliveryID string) string {
	return hashUUID("rejected", workflowID, nodeID, deliveryID)
}

// IDForRequeue returns the ID of the execution that a requeue starts. It depends only on the
// original execution, so requeuing twice starts only one execution.
func IDForRequeue(executionID string) string {
	return hashUUID("requeue", "", "", executionID)
}

// IDForReplay returns the ID of the execution that a replay with an idempotency key starts. It
// depends only on the original execution and the key, so repeating the replay with the same key
// starts nothing new.
func IDForReplay(executionID, key string) string {
	return hashUUID("replay", executionID, "", key)
}

// IDForRerun returns the ID of the execution that a rerun of executionID with an idempotency key
// starts. A rerun uses the sample payload of the trigger node instead of the original body. The
// result depends only on executionID and the key, so repeating the rerun with the same key starts
// nothing new.
func IDForRerun(executionID, key string) string {
	return hashUUID("rerun", executionID, "", key)
}

// IDForTriggerRerun is like IDForRerun, for a rerun that is requested for a trigger node instead of
// an execution.
func IDForTriggerRerun(workflowID, nodeID, key string) string {
	return hashUUID("trigger-rerun", workflowID, nodeID, key)
}

// hashUUID returns a UUID that is a hash of its arguments. Only the last argument may contain a
// NUL, so that different arguments never result in the same concatenation.
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
