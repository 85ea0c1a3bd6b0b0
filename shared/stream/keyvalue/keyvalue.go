// Package keyvalue describes how NATS stores a key-value bucket: in a stream that has one subject
// for each key. A message on that subject contains the key's value, or deletes the key. The NATS
// client does the same, but does not export the names that it uses.
package keyvalue

import "github.com/nats-io/nats.go"

const (
	// StreamPrefix is the prefix of the names of buckets' streams: KV_{bucket}.
	StreamPrefix = "KV_"
	// SubjectPrefix is the beginning of the subject of each key: $KV.{bucket}.{key}.
	SubjectPrefix = "$KV."
)

const (
	operationHeader = "KV-Operation"
	deleteOperation = "DEL"
	purgeOperation  = "PURGE" // deletes the earlier values, too
)

// DeletionHeader returns the header of a message that deletes a key.
func DeletionHeader() nats.Header { return nats.Header{operationHeader: {deleteOperation}} }

// IsDeletion reports whether the message with the given header deletes its key.
func IsDeletion(header nats.Header) bool {
	operation := header.Get(operationHeader)
	return operation == deleteOperation || operation == purgeOperation
}
