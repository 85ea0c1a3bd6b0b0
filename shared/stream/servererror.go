package stream

import (
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// Error codes of JetStream that the client has no names for; see errors.json of nats-server.
const (
	CodeAccountResources      = 10002 // a limit of the NATS account is reached
	CodeNoPeers               = 10005 // fewer servers are up than replicas are needed
	CodeNotAvailable          = 10008
	CodeNotLeader             = 10009
	CodeInsufficientResources = 10023 // the server's limit for all its streams is reached
	CodeMemoryExceeded        = 10028
	CodeStorageExceeded       = 10047
	CodeInvalidConfig         = 10052
	CodeMessageTooLong        = 10054 // the message exceeds max_msg_size
	CodeWrongLastSequence     = 10071
	CodeNoCluster             = 10074
	CodeStoreFailed           = 10077 // a limit of the stream is reached, or its storage failed
	CodeRollup                = 10111 // Nats-Rollup is not allowed, or has a wrong value
	// CodeStreamOffline and CodeStreamOfflineReason mean that a stream is unavailable because all
	// of its servers are down or cannot run it. With CodeStreamOfflineReason, the error's
	// description contains the reason. The status of both errors is 500.
	CodeStreamOffline       = 10118
	CodeStreamOfflineReason = 10194
	// CodeDuplicateInProcess means that a message was refused because the server is still storing
	// another message with the same ID. Storing the other message may still fail.
	CodeDuplicateInProcess = 10158
	// CodeWrongLastSequenceInProcess is returned instead of CodeWrongLastSequence while the server
	// is still storing another message with the same subject. Storing the other message may still
	// fail.
	CodeWrongLastSequenceInProcess = 10164
	CodeTooManyRequests            = 10167
)

// ErrorCode returns the code of an error from JetStream, or 0 if err is not such an error. The
// result is a plain number, because the client's type names only a few of the codes.
func ErrorCode(err error) uint16 {
	refusal, ok := errors.AsType[*jetstream.APIError](err)
	if !ok {
		return 0
	}
	return uint16(refusal.ErrorCode)
}

// IsStorageFull reports whether err is JetStream's refusal to store a message for lack of room: a
// limit of the stream, the account or the server is reached, or the disk is full.
func IsStorageFull(err error) bool {
	switch ErrorCode(err) {
	case CodeAccountResources, CodeInsufficientResources, CodeMemoryExceeded, CodeStorageExceeded,
		CodeStoreFailed:
		return true
	}
	return false
}

// IsWrongLastSequence reports whether a stream has refused a message because the message's header
// Nats-Expected-Last-Subject-Sequence does not match the last message on its subject.
func IsWrongLastSequence(err error) bool {
	code := ErrorCode(err)
	return code == CodeWrongLastSequence || code == CodeWrongLastSequenceInProcess
}

// ErrTooFewServers means that the cluster has fewer NATS servers than the requested number of
// replicas.
var ErrTooFewServers = errors.New("too few NATS servers")

// ExplainTooFewServers replaces the server's errors about missing servers with a human-readable one
// that wraps ErrTooFewServers and names the requested number of replicas. It returns other errors
// unchanged.
func ExplainTooFewServers(err error, replicas int) error {
	api, ok := errors.AsType[*jetstream.APIError](err)
	switch {
	case ok && uint16(api.ErrorCode) == CodeNoCluster:
		return fmt.Errorf("%w: %d replicas need a cluster of %d servers, but this server is not "+
			"in a cluster", ErrTooFewServers, replicas, replicas)
	case ok && uint16(api.ErrorCode) == CodeNoPeers:
		return fmt.Errorf("%w: %d replicas need a cluster of %d servers that are all up (%s)",
			ErrTooFewServers, replicas, replicas, api.Description)
	default:
		return err
	}
}
