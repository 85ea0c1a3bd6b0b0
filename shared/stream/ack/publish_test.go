package ack

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/nats-io/nats.go"
)

// Publish returns only when the connection no longer reads the message, even if the message's
// deadline passes first. The caller can then reuse the message.
func TestAMessageIsTheCallersAgainAfterItWasSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, returned := newPendingMessage(), false
		go func() {
			w.wait()
			returned = true
		}()
		w.done(Ack{}, ErrTimeout)
		synctest.Wait()
		if returned {
			t.Error("the message may change while it is sent")
		}
		w.sendErr <- nil
		synctest.Wait()
		if !returned {
			t.Error("it was sent")
		}
	})
}

// The connection is lost while Publish waits. If the message was never passed to the connection,
// Publish returns the reason, which tells the caller that the message was not stored. Otherwise,
// Publish returns ErrDisconnected, because it is unknown whether the message was stored.
func TestAMessageThatWasNotSentIsKnownNotToBeStored(t *testing.T) {
	t.Parallel()
	w := newPendingMessage()
	w.done(Ack{}, ErrDisconnected)
	w.sendErr <- nats.ErrReconnectBufExceeded
	if got := w.wait(); !errors.Is(got.err, nats.ErrReconnectBufExceeded) {
		t.Errorf("not sent: %v", got.err)
	}
	w.done(Ack{}, ErrDisconnected)
	w.sendErr <- nil
	if got := w.wait(); !errors.Is(got.err, ErrDisconnected) {
		t.Errorf("sent: %v", got.err)
	}
}
