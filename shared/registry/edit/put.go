package edit

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/stream/keyvalue"
)

// put stores a record and returns its new revision. It fails with errRetry unless the given
// revision, on which the record is based, is still the current one. Revision 0 means that the
// record is new.
func (e *Editor) put(
	ctx context.Context, kv jetstream.KeyValue, key string, record registry.Record, revision uint64,
) (uint64, error) {
	data, err := record.Encode()
	if err != nil {
		return 0, fmt.Errorf("encode %s: %w", key, err)
	}
	header := nats.Header{}
	switch entry, given := ctx.Value(auditEntryKey{}).(AuditEntry); {
	case given:
		header.Set(registry.AuditHeader, EncodeAuditEntry(entry))
	case kv.Bucket() == registry.Bucket:
		if entry, audited := e.auditEntryFor(ctx, key, record); audited {
			header.Set(registry.AuditHeader, EncodeAuditEntry(entry))
		}
	}
	if len(header) == 0 {
		var stored uint64
		if revision == 0 {
			// Create also works after a deletion; Update with revision 0 would not.
			stored, err = kv.Create(ctx, key, data)
		} else {
			stored, err = kv.Update(ctx, key, data, revision)
		}
		recordStoredRevision(ctx, kv.Bucket(), stored)
		return stored, classifyWriteError(err, key)
	}
	stored, err := e.publishRevision(ctx, kv, key, header, data, revision)
	if revision == 0 && errors.Is(err, errRetry) {
		// NATS also refuses revision 0 if the record existed before and was deleted. In that case,
		// try again with the revision of the deletion.
		if mark := e.deletionRevision(ctx, kv, key); mark > 0 {
			return e.publishRevision(ctx, kv, key, header, data, mark)
		}
	}
	return stored, err
}

// removeRecord deletes a record of the registry. It fails with errRetry unless the given revision
// is still the current one.
func (e *Editor) removeRecord(ctx context.Context, key string, revision uint64) (uint64, error) {
	header := keyvalue.DeletionHeader()
	if entry, audited := e.auditEntryFor(ctx, key, nil); audited {
		header.Set(registry.AuditHeader, EncodeAuditEntry(entry))
	}
	return e.publishRevision(ctx, e.registry, key, header, nil, revision)
}

// publishRevision stores one revision of a record in the same way as the client's KeyValue does,
// but with a header, which KeyValue does not support. It fails with errRetry unless the given
// revision is still the record's current one.
func (e *Editor) publishRevision(
	ctx context.Context, kv jetstream.KeyValue, key string, header nats.Header, data []byte,
	revision uint64,
) (uint64, error) {
	msg := &nats.Msg{Subject: registry.SubjectOf(kv.Bucket(), key), Header: header, Data: data}
	ack, err := e.js.PublishMsg(ctx, msg, jetstream.WithExpectLastSequencePerSubject(revision))
	if err != nil {
		return 0, classifyWriteError(err, key)
	}
	recordStoredRevision(ctx, kv.Bucket(), ack.Sequence)
	return ack.Sequence, nil
}

// deletionRevision returns the revision that deleted a record. It returns 0 if the record exists or
// never existed, or if the newest revision cannot be read.
func (e *Editor) deletionRevision(ctx context.Context, kv jetstream.KeyValue, key string) uint64 {
	last, err := newestRevision(ctx, e.js, kv.Bucket(), key)
	if err != nil || last == nil || !last.deleted {
		return 0
	}
	return last.revision
}

// OutcomeUnknownError means that it is unknown whether a change was stored, because the
// acknowledgment was lost or is late.
type OutcomeUnknownError struct{ cause error }

func (e *OutcomeUnknownError) Error() string {
	return "it is not known whether the change is stored: " + e.cause.Error()
}

// Unwrap returns the underlying error.
func (e *OutcomeUnknownError) Unwrap() error { return e.cause }

// classifyWriteError converts an error from storing the record under key. It returns errRetry if
// the record did not have the expected revision, and an *OutcomeUnknownError if no response
// arrived. A replicated bucket reports a wrong revision with a different error code than a bucket
// on one server.
func classifyWriteError(err error, key string) error {
	var api *jetstream.APIError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jetstream.ErrKeyExists),
		errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
			api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant):
		return errRetry
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout),
		errors.Is(err, nats.ErrDisconnected),
		errors.Is(err, nats.ErrConnectionClosed):
		return &OutcomeUnknownError{fmt.Errorf("store %s: %w", key, err)}
	default:
		return fmt.Errorf("store %s: %w", key, err)
	}
}
