package ack

import (
	"testing"
	"testing/synctest"
)

// Publish must not return while the connection may still read the message, even if the deadline has
// passed.
func TestAMessageIsTheCallersAgainAfterItWasSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, returned := newWaiter(), false
		go func() {
			w.wait()
			returned = true
		}()
		w.done(Ack{}, ErrTimeout)
		synctest.Wait()
		if returned {
			t.Error("the message may change while it is sent")
		}
		w.sent <- struct{}{}
		synctest.Wait()
		if !returned {
			t.Error("it was sent")
		}
	})
}
