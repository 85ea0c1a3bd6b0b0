package stream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/stream/keyvalue"
	"github.com/hookstart/hookstart/shared/stream/leader"
)

// CancellationsBucket is the bucket of the executions that an operator has canceled. The key is the
// execution's ID. A key is kept as long as messages are kept in the stream, because the start
// message of a canceled execution may be redelivered during that time. The start message itself is
// not deleted, because NATS would then forget its delivery ID as well.
const CancellationsBucket = "cancellations"

// CancellationsStream is the name of the stream that stores CancellationsBucket.
const CancellationsStream = keyvalue.StreamPrefix + CancellationsBucket

const cancellationsPrefix = keyvalue.SubjectPrefix + CancellationsBucket + "."

// EnsureCancellationsBucket creates the bucket if it does not exist. It makes an existing bucket
// keep its keys for at least s.MaxAge, the time for which the stream keeps messages.
func EnsureCancellationsBucket(ctx context.Context, js jetstream.JetStream, s Settings) error {
	err := extendCancellationsMaxAge(ctx, js, s.MaxAge)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket:      CancellationsBucket,
			Description: "hookstart: executions whose end was asked for",
			TTL:         s.MaxAge,
			Replicas:    s.Replicas,
		})
		if errors.Is(err, jetstream.ErrBucketExists) {
			err = nil // another executor has created it
		}
	}
	if err != nil {
		return fmt.Errorf("bucket %s: %w", CancellationsBucket, err)
	}
	return nil
}

// extendCancellationsMaxAge makes the bucket keep its keys for at least the given age. It never
// shortens the time for which keys are kept, because a queue's own stream may keep its messages
// longer.
func extendCancellationsMaxAge(
	ctx context.Context, js jetstream.JetStream, age time.Duration,
) error {
	s, err := js.Stream(ctx, CancellationsStream)
	if err != nil {
		return err
	}
	config := s.CachedInfo().Config
	if config.MaxAge == 0 || config.MaxAge >= age {
		return nil
	}
	config.MaxAge = age
	_, err = js.UpdateStream(ctx, config)
	return err
}

const (
	// concurrentCancelRetryDelay is how long PutCancellation waits between attempts while a cluster
	// is still storing another cancellation of the same execution.
	concurrentCancelRetryDelay = 50 * time.Millisecond
	// maxConcurrentCancelWait is how long PutCancellation keeps trying while a cluster is still
	// storing another cancellation of the same execution.
	maxConcurrentCancelWait = 5 * time.Second
)

// PutCancellation records that an execution must be canceled, unless that has already been
// recorded. at is when an operator requested this. Once PutCancellation has returned nil,
// NextCancellation and IsCanceled find the cancellation.
func PutCancellation(
	ctx context.Context, bucket jetstream.KeyValue, executionID string, at time.Time,
) error {
	value, err := proto.Marshal(&hookstartv1.Cancellation{RequestedAt: timestamppb.New(at)})
	if err != nil {
		return err
	}
	for began := time.Now(); ; retry.Sleep(ctx, concurrentCancelRetryDelay) {
		_, err := bucket.Create(ctx, executionID, value)
		var api *jetstream.APIError
		inFlight := errors.As(err, &api) &&
			api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant
		switch {
		case inFlight && ctx.Err() == nil && time.Since(began) < maxConcurrentCancelWait:
			// The cluster is still storing another cancellation of the execution, and may fail to
			// store it. Do not return, but try again.
		case err == nil || errors.Is(err, jetstream.ErrKeyExists) && !inFlight:
			return nil
		default:
			return fmt.Errorf("bucket %s: %w", CancellationsBucket, err)
		}
	}
}

// NextCancellation returns the ID and the revision of the first canceled execution whose revision
// is at least from, or an empty ID if there is none. It queries the leader of the bucket's stream,
// so it finds everything that PutCancellation stored before the call. If there is no bucket, it
// fails with jetstream.ErrBucketNotFound.
func NextCancellation(
	ctx context.Context, nc *nats.Conn, from uint64,
) (executionID string, revision uint64, err error) {
	msg, err := leader.Get(ctx, nc, CancellationsStream, leader.Query{
		Sequence:      max(from, 1),
		NextBySubject: cancellationsPrefix + "*",
	})
	switch {
	case errors.Is(err, leader.ErrNoMessage):
		return "", 0, nil
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return "", 0, jetstream.ErrBucketNotFound
	case err != nil:
		return "", 0, fmt.Errorf("bucket %s: %w", CancellationsBucket, err)
	}
	return strings.TrimPrefix(msg.Subject, cancellationsPrefix), msg.Sequence, nil
}

// IsCanceled reports whether an execution has been canceled. Like NextCancellation, it queries the
// leader, and fails with jetstream.ErrBucketNotFound if there is no bucket.
func IsCanceled(ctx context.Context, nc *nats.Conn, executionID string) (bool, error) {
	_, err := leader.Get(ctx, nc, CancellationsStream, leader.Query{
		LastBySubject: cancellationsPrefix + executionID,
	})
	switch {
	case errors.Is(err, leader.ErrNoMessage):
		return false, nil
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return false, jetstream.ErrBucketNotFound
	case err != nil:
		return false, fmt.Errorf("bucket %s: %w", CancellationsBucket, err)
	}
	return true, nil
}
