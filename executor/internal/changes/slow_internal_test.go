package changes

import (
	"testing"
	"time"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
)

// Announcements arrive faster than this process handles them, so the NATS client drops some. All
// watches in this process must end.
func TestWatchesEndWhenChangesWereDropped(t *testing.T) {
	t.Parallel()
	nc := natstest.Start(t).Connect(t)
	c, err := New(nc)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Stop()
	if err := c.sub.SetPendingLimits(1, -1); err != nil {
		t.Fatal(err)
	}
	w := c.Watch(time.Time{})
	defer w.Cancel()
	c.mu.Lock() // blocks receive while announcements arrive
	for range 10 {
		err = c.announceInParts([]string{"a"})
		if err != nil {
			break
		}
	}
	if err == nil {
		err = nc.Flush()
	}
	c.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	timeout := time.After(30 * time.Second)
	for {
		select {
		case _, open := <-w.Batches:
			if !open {
				return
			}
		case <-timeout:
			t.Fatal("changes were dropped, and the watch goes on")
		}
	}
}
