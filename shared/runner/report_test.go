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

// unconfirmedReport returns a message whose report was published at the given time and is not
// confirmed, and the inFlightMessages that contain it. AckWait is 10 s.
func unconfirmedReport(t *testing.T, at time.Time) (*inFlightMessages, *message) {
	t.Helper()
	m := &message{report: &nats.Msg{}, ackWaitStart: at, onPublished: func(error) {}}
	return &inFlightMessages{
		ackWait: 10 * time.Second, handlersCtx: t.Context(),
		messages: map[messageKey]*message{{}: m},
	}, m
}

// The stream refuses a report because its storage is full, and then sending the report fails with
// another error. The runner nevertheless keeps the report for AckWait after the refusal: in a
// cluster, the stream has no leader for a moment after such a refusal.
func TestARefusalForLackOfRoomCountsAfterOthers(t *testing.T) {
	t.Parallel()
	full := &jetstream.APIError{ErrorCode: jetstream.ErrorCode(stream.CodeInsufficientResources)}
	u, m := unconfirmedReport(t, time.Now().Add(-9*time.Second))
	u.handleReply(m, full)
	u.handleReply(m, nats.ErrNoResponders)
	refused := time.Now()
	u.dueReportAction(m, refused.Add(u.ackWait-time.Second))
	if len(u.messages) == 0 {
		t.Fatal("the report was given up")
	}
	u.dueReportAction(m, refused.Add(u.ackWait+time.Millisecond))
	if len(u.messages) > 0 {
		t.Error("the report was kept after AckWait without a refusal for lack of room")
	}
}

// An unconfirmed report is sent again once per tenth of AckWait.
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

// While a report waits because the storage of NATS is full, the runner logs a warning immediately,
// and again after each AckWait.
func TestReportsThatWaitForRoomAreLogged(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	u, m := unconfirmedReport(t, begun)
	warnings := 0
	u.logWaitingReport = func(*message, error) { warnings++ }
	full := &jetstream.APIError{ErrorCode: jetstream.ErrorCode(stream.CodeStorageExceeded)}
	for tick := range 10 {
		u.handleReply(m, full)
		now := begun.Add(time.Duration(tick) * u.ackWait / 4)
		m.ackWaitStart, m.reportSentAt = now, now // so that only the warning is due
		if do := u.dueReportAction(m, now); do != nil {
			do()
		}
		if want := tick/4 + 1; warnings != want {
			t.Errorf("after %d quarters of AckWait: %d warnings, want %d", tick, warnings, want)
		}
	}
}

// The stream refuses a report because its storage is full, and then the runner must stop its
// handlers. It keeps the report until AckWait has passed since the last refusal before that moment,
// because the stream's next leader may have space. Later refusals do not prolong this time.
func TestAStoppedRunnerGivesUpAReportAfterAckWait(t *testing.T) {
	t.Parallel()
	u, m := unconfirmedReport(t, time.Now().Add(-9*time.Second))
	working, end := context.WithCancel(t.Context())
	u.handlersCtx = working
	full := &jetstream.APIError{ErrorCode: jetstream.ErrorCode(stream.CodeStorageExceeded)}
	u.logWaitingReport = func(*message, error) {}
	u.handleReply(m, full)
	ended := time.Now()
	end()
	var given error
	m.onPublished = func(err error) { given = err }
	for _, after := range []time.Duration{time.Millisecond, u.ackWait - time.Second} {
		u.handleReply(m, full)
		if do := u.dueReportAction(m, ended.Add(after)); do == nil || len(u.messages) == 0 {
			t.Fatalf("after %s, the report is not sent again", after)
		}
	}
	if do := u.dueReportAction(m, ended.Add(u.ackWait+time.Millisecond)); do != nil {
		do()
	}
	if len(u.messages) > 0 || !errors.Is(given, full) {
		t.Errorf("%d messages, given up because of %v", len(u.messages), given)
	}
}
