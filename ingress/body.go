package ingress

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/hookstart/hookstart/ingress/internal/admission"
	"github.com/hookstart/hookstart/shared/webhook"
)

// readBody reads the whole body, within the bounds on requests in flight and on bytes
// in memory, into the request's buffers if its length is declared. release gives back what
// it took of the bounds; it may always be called.
func (h *handler) readBody(w http.ResponseWriter, r *http.Request, e *event, b *buffers) (body []byte, release func(), refusal *admission.Refusal) {
	// A body of unknown length may grow to the limit.
	reserved := r.ContentLength
	if reserved < 0 {
		reserved = h.maxBody
	}
	inFlight, buffered := h.inFlight.Add(1), h.buffered.Add(reserved)
	release = func() {
		h.inFlight.Add(-1)
		h.buffered.Add(-reserved)
	}
	if inFlight > h.maxInFlight || buffered > h.maxBuffered {
		return nil, release, &admission.Refusal{Code: webhook.Overloaded, RetryAfter: time.Second}
	}
	if r.ContentLength == 0 {
		return nil, release, nil
	}

	e.unread = false

	// It ends with the body: net/http takes it off when it has read that.
	if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(h.bodyTimeout)); err != nil {
		return nil, release, &admission.Refusal{Code: webhook.BodyUnreadable}
	}
	var err error
	if r.ContentLength > 0 { // at most maxBody: that was checked first of all
		body = b.forBody(r.ContentLength)
		_, err = io.ReadFull(r.Body, body)
	} else {
		var grown bytes.Buffer
		_, err = grown.ReadFrom(http.MaxBytesReader(w, r.Body, h.maxBody))
		body = grown.Bytes()
	}
	_, tooLarge := errors.AsType[*http.MaxBytesError](err)
	switch {
	case tooLarge:
		return nil, release, &admission.Refusal{Code: webhook.BodyTooLarge}
	case err != nil:
		return nil, release, &admission.Refusal{Code: webhook.BodyUnreadable}
	}
	return body, release, nil
}

// maxDiscard is how much of a body is read only to keep a connection.
const maxDiscard = 256 << 10

// answerFirst makes what is written next go out before the body is read. Otherwise
// net/http waits for the body of a request that is refused by its headers: for ever,
// when it does not come.
func (h *handler) answerFirst(w http.ResponseWriter) {
	_ = http.NewResponseController(w).EnableFullDuplex()
}

// discardBody sends the answer and reads what is left of the request, so that the sender
// can use the connection again. When there is too much of it, or it does not come in
// time, the connection ends: the rest must not be taken for a request.
//
// net/http would do the same after the handler has returned; but in full duplex its
// reader is then in the way of the next request.
func (h *handler) discardBody(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	if control.Flush() != nil || control.SetReadDeadline(time.Now().Add(h.bodyTimeout)) != nil {
		panic(http.ErrAbortHandler)
	}
	if _, err := io.CopyN(io.Discard, r.Body, maxDiscard); !errors.Is(err, io.EOF) {
		panic(http.ErrAbortHandler) // closes the connection, and logs nothing
	}
}
