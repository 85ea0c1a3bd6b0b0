package ack

import (
	"testing"
	"testing/synctest"
)

// After a timeout, the connection may still be about to read the message.
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
