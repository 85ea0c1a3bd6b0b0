package operate

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/shared/stream"
)

// An error about a stream that is offline counts as temporary, although NATS gives it the status
// 500. Other errors with this status do not count as temporary.
func TestAStreamThatIsOfflineIsUnavailable(t *testing.T) {
	t.Parallel()
	for _, code := range []jetstream.ErrorCode{
		stream.CodeStreamOffline, stream.CodeStreamOfflineReason,
	} {
		err := fmt.Errorf("stream X: %w", &jetstream.APIError{Code: 500, ErrorCode: code})
		if !isNATSUnavailable(err) {
			t.Errorf("%v", err)
		}
	}
	if err := error(&jetstream.APIError{Code: 500}); isNATSUnavailable(err) {
		t.Errorf("%v", err)
	}
}

func TestARecordThatNATSCanNeverTake(t *testing.T) {
	t.Parallel()
	err := (&Service{}).toError(t.Context(), fmt.Errorf("store wf.n: %w", nats.ErrMaxPayload))
	if err.Code != api.CodeBodyTooLarge {
		t.Errorf("%s: %v", err.Code, err)
	}
}
