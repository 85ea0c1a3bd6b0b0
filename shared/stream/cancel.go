package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
)

// CancellationsBucket is the bucket of the executions whose end an operator asked for: the key is
// the execution's ID. A key stays as long as messages stay in the stream: a message that is
// delivered again is recognised for as long as it can be delivered. The message itself stays, too:
// NATS would forget its delivery ID with it.
const CancellationsBucket = "cancellations"

// CancellationsStream is the stream behind the bucket.
const CancellationsStream = "KV_" + CancellationsBucket

const cancellationsPrefix = "$KV." + CancellationsBucket + "."

// EnsureCancellations creates the bucket if it does not exist.
func EnsureCancellations(ctx context.Context, js jetstream.JetStream, s Settings) error {
	_, err := js.KeyValue(ctx, CancellationsBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		_, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket:      CancellationsBucket,
			Description: "hookstart: executions whose end was asked for",
			TTL:         s.MaxAge,
			Replicas:    s.Replicas,
		})
		if errors.Is(err, jetstream.ErrBucketExists) {
			err = nil // another executor was first
		}
	}
	if err != nil {
		return fmt.Errorf("bucket %s: %w", CancellationsBucket, err)
	}
	return nil
}

// PutCancellation stores that an execution is to end. Whoever asks NextCancellation after it
// returned finds it. One that is there already is left as it is.
func PutCancellation(
	ctx context.Context, bucket jetstream.KeyValue, executionID string, at time.Time,
) error {
	value, err := proto.Marshal(&hookstartv1.Cancellation{RequestedAt: timestamppb.New(at)})
	if err != nil {
		return err
	}
	if _, err := bucket.Create(ctx, executionID, value); err != nil &&
		!errors.Is(err, jetstream.ErrKeyExists) {
		return fmt.Errorf("bucket %s: %w", CancellationsBucket, err)
	}
	return nil
}

// The server's error codes; see errors.json of nats-server.
const (
	codeMessageNotFound = 10037
	codeStreamNotFound  = 10059
)

// NextCancellation returns the ID of the first canceled execution from a revision on, and its
// revision. The ID is "" if there is none. The leader of the bucket answers, so that everything
// that PutCancellation has stored before is found. It fails with jetstream.ErrBucketNotFound if
// there is no bucket.
func NextCancellation(
	ctx context.Context, nc *nats.Conn, from uint64,
) (executionID string, revision uint64, err error) {
	ask := fmt.Appendf(nil, `{"seq":%d,"next_by_subj":"%s*"}`, max(from, 1), cancellationsPrefix)
	msg, err := nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+CancellationsStream, ask)
	if err != nil {
		return "", 0, fmt.Errorf("bucket %s: %w", CancellationsBucket, err)
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Subject  string `json:"subject"`
			Sequence uint64 `json:"seq"`
		} `json:"message"`
	}
	if err := json.Unmarshal(msg.Data, &answer); err != nil {
		return "", 0, fmt.Errorf("bucket %s: %w", CancellationsBucket, err)
	}
	if failure := answer.Error; failure != nil {
		if failure.ErrorCode == codeMessageNotFound {
			return "", 0, nil
		}
		if failure.ErrorCode == codeStreamNotFound {
			return "", 0, jetstream.ErrBucketNotFound
		}
		return "", 0, fmt.Errorf("bucket %s: %w", CancellationsBucket, failure)
	}
	return strings.TrimPrefix(answer.Message.Subject, cancellationsPrefix), answer.Message.Sequence,
		nil
}
