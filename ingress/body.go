package ingress

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/hookstart/hookstart/ingress/internal/admission"
)

// readBody reads the whole body, within the bounds on requests in flight and on bytes
// in memory. release gives back what it took; it may always be called.
func (h *handler) readBody(w http.ResponseWriter, r *http.Request) (body []byte, release func(), refusal *admission.Refusal) {
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
		return nil, release, &admission.Refusal{Code: admission.Overloaded, RetryAfter: time.Second}
	}
	if r.ContentLength == 0 {
		return nil, release, nil
	}

	// The connection's next request sets a deadline of its own.
	deadline := http.NewResponseController(w).SetReadDeadline
	if err := deadline(time.Now().Add(h.bodyTimeout)); err != nil {
		return nil, release, &admission.Refusal{Code: admission.BodyUnreadable}
	}
	limited := http.MaxBytesReader(w, r.Body, h.maxBody)
	var err error
	if r.ContentLength > 0 {
		body = make([]byte, r.ContentLength)
		_, err = io.ReadFull(limited, body)
	} else {
		var grown bytes.Buffer
		_, err = grown.ReadFrom(limited)
		body = grown.Bytes()
	}
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, release, &admission.Refusal{Code: admission.BodyTooLarge}
	case err != nil:
		return nil, release, &admission.Refusal{Code: admission.BodyUnreadable}
	}
	_ = deadline(time.Time{}) // it must not end the wait for the stream
	return body, release, nil
}
