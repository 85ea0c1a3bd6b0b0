package recorder

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// The pause after a burst grows with the rate, between minPauseAfterBurst and maxPauseAfterBurst.
func TestPause(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		messages int
		since    time.Duration
		want     time.Duration
	}{
		{0, time.Second, minPauseAfterBurst},
		{100, 100 * time.Millisecond, minPauseAfterBurst},
		{500, 100 * time.Millisecond, minPauseAfterBurst},
		{700, 100 * time.Millisecond, 95 * time.Millisecond},
		{2_000, 200 * time.Millisecond, maxPauseAfterBurst},
		{maxBatchMessages, 200 * time.Millisecond, maxPauseAfterBurst},
		{maxBatchMessages, 0, maxPauseAfterBurst},
	} {
		if got := pauseAfterBurst(c.messages, c.since); got != c.want {
			t.Errorf("%d messages in %s: %s, want %s", c.messages, c.since, got, c.want)
		}
	}
}

// bodyOnly is a message that has only a body.
type bodyOnly struct {
	jetstream.Msg

	body []byte
}

func (m bodyOnly) Data() []byte { return m.body }

// awaitRoom waits while a full batch is waiting to be recorded. A batch is full if it has
// maxBatchMessages messages, or if the total length of their bodies is maxBatchBytes.
func TestRoom(t *testing.T) {
	t.Parallel()
	short, long := bodyOnly{}, bodyOnly{body: make([]byte, maxBatchBytes/2)}
	for name, c := range map[string]struct {
		message bodyOnly
		count   int // number of messages at which awaitRoom begins to wait
	}{
		"messages": {short, maxBatchMessages},
		"bytes":    {long, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var a arrivalBuffer
				for range c.count - 1 {
					a.add(c.message)
				}
				a.awaitRoom(t.Context()) // returns immediately, because there is room
				a.add(c.message)
				has := false
				go func() {
					a.awaitRoom(context.WithoutCancel(t.Context()))
					has = true
				}()
				synctest.Wait()
				if has {
					t.Error("there is room beside a whole batch")
				}
				if got := len(a.nextBatch()); got != c.count {
					t.Errorf("gathered %d of %d", got, c.count)
				}
				synctest.Wait()
				if !has {
					t.Error("there is no room after the batch was gathered")
				}
			})
		})
	}
}
