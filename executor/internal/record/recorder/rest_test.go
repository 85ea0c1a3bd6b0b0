package recorder

import (
	"testing"
	"time"
)

// The recorder's pause after a batch is proportional to the batch's duration, up to a maximum. If
// many messages are waiting, there is no pause.
func TestRest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		took    time.Duration
		waiting uint64
		want    time.Duration
	}{
		{time.Millisecond, 0, batchPauseRatio * time.Millisecond},
		{2 * time.Millisecond, noPauseBacklog / 2, batchPauseRatio * time.Millisecond},
		{time.Second, 0, maxPauseAfterBatch},
		{time.Second, noPauseBacklog, 0},
		{time.Second, 10 * noPauseBacklog, 0},
	} {
		if got := pauseAfterBatch(c.took, c.waiting); got != c.want {
			t.Errorf("after %s with %d waiting: %s, want %s", c.took, c.waiting, got, c.want)
		}
	}
}
