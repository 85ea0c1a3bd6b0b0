package runner

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/stream"
)

// unconfirmedReport returns a message whose report has been published at a time.
func unconfirmedReport(t *testing.T, at time.Time) (*inFlightMessages, *message) {
	t.Helper()
	m := &message{report: &nats.Msg{}, reported: at, published: func(error) {}}
	return &inFlightMessages{
		ackWait: 10 * time.Second, working: t.Context(), messages: map[messageKey]*message{{}: m},
	}, m
}

// A report that was refused for lack of room is kept, also if other answers came later: in a
// cluster, the stream has no leader after such a refusal.
func TestARefusalForLackOfRoomCountsAfterOthers(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	full := &jetstream.APIError{ErrorCode: jetstream.ErrorCode(stream.CodeInsufficientResources)}
	u, m := unconfirmedReport(t, begun)
	u.handleReply(m, full)
	u.handleReply(m, nats.ErrNoResponders)
	begun = begun.Add(u.ackWait + time.Millisecond)
	if u.dueReportAction(m, begun) == nil || len(u.messages) == 0 {
		t.Fatal("the report was given up")
	}
	u.handleReply(m, nats.ErrNoResponders)
	u.dueReportAction(m, begun.Add(u.ackWait+time.Millisecond))
	if len(u.messages) > 0 {
		t.Error("the report was kept after AckWait without a refusal for lack of room")
	}
}

// A report is repeated once in each tenth of AckWait.
func TestReportsAreRepeatedAtIntervals(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	u, m := unconfirmedReport(t, begun)
	for tenth := range 5 {
		now := begun.Add(time.Duration(tenth+1) * u.ackWait / 10)
		if u.dueReportAction(m, now) == nil {
			t.Errorf("it was not repeated in tenth %d", tenth)
		}
		if u.dueReportAction(m, now.Add(u.ackWait/20)) != nil {
			t.Errorf("it was repeated twice in tenth %d", tenth)
		}
	}
}

// A runner whose handlers may no longer continue does not wait until NATS has room.
func TestAStoppedRunnerDoesNotWaitForRoom(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	u, m := unconfirmedReport(t, begun)
	ended, end := context.WithCancel(t.Context())
	u.working = ended
	full := &jetstream.APIError{ErrorCode: jetstream.ErrorCode(stream.CodeStorageExceeded)}
	u.handleReply(m, full)
	end()
	var given error
	m.published = func(err error) { given = err }
	do := u.dueReportAction(m, begun.Add(time.Millisecond))
	if do == nil {
		t.Fatal("the report waits")
	}
	do()
	if len(u.messages) > 0 || !errors.Is(given, full) {
		t.Errorf("%d messages, given up because of %v", len(u.messages), given)
	}
}
