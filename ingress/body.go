package ingress

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/hookstart/hookstart/ingress/internal/admission"
	"github.com/hookstart/hookstart/shared/webhook"
)

// Bodies are read in steps: memory is taken for what has come, and not for what a sender
// announces.
const (
	firstStep  = keptBuffer
	stepFactor = 4
)

// rateGrace is how long a body may take to begin before its rate counts.
const rateGrace = 5 * time.Second

// reading is a body that is being read, and what it holds of the bounds.
type reading struct {
	h         *handler
	accountID string
	reserved  int64 // bytes; -1: it has no place
	read      int   // bytes that have come, also of a body that is refused then
}

// release gives back what a body holds. It may always be called.
func (d *reading) release() {
	if d.reserved >= 0 {
		d.h.shares.leave(d.accountID, d.reserved)
		d.reserved = -1
	}
}

// source is a request's body; of one of undeclared length, at most as much as is allowed.
func (h *handler) source(w http.ResponseWriter, r *http.Request) io.Reader {
	if r.ContentLength < 0 {
		return http.MaxBytesReader(w, r.Body, h.maxBody)
	}
	return r.Body
}

// readBody reads the whole body into the request's buffers, within the bounds on requests in
// flight and on bytes in memory, the account's share of both, and the time that a body may
// take.
func (h *handler) readBody(w http.ResponseWriter, r *http.Request, e *event, b *buffers, accountID string) (body []byte, d reading, refusal *admission.Refusal) {
	d = reading{h: h, accountID: accountID, reserved: -1}
	declared := r.ContentLength // at most maxBody: that was checked first of all
	most := declared
	if declared < 0 {
		most = h.maxBody
	}
	room := min(most, firstStep)
	if !h.shares.enter(accountID, room) {
		return nil, d, overloaded()
	}
	d.reserved = room
	if declared == 0 {
		return nil, d, nil
	}

	e.unread = false
	control := http.NewResponseController(w)
	began := time.Now()
	due := h.bodyDue(most, 0)
	// It ends with the body: net/http takes it off when it has read that.
	if err := control.SetReadDeadline(began.Add(due)); err != nil {
		return nil, d, &admission.Refusal{Code: webhook.BodyUnreadable}
	}
	source := h.source(w, r)
	body = b.forBody(room)
	for int64(d.read) != declared {
		if d.read == len(body) {
			grown := min(most, int64(d.read)*stepFactor)
			if grown == int64(d.read) { // of undeclared length and at the limit: is this its end?
				var one [1]byte
				if _, err := io.ReadFull(source, one[:]); !errors.Is(err, io.EOF) {
					return nil, d, unreadable(err)
				}
				break
			}
			if !h.shares.more(accountID, grown-d.reserved) {
				e.unread = true // what has not come yet must not hold up the answer
				return nil, d, overloaded()
			}
			d.reserved = grown
			body = b.grow(grown, d.read)
		}
		n, err := source.Read(body[d.read:])
		d.read += n
		if err != nil && int64(d.read) != declared {
			if errors.Is(err, io.EOF) && declared < 0 {
				break
			}
			return nil, d, unreadable(err)
		}
		if later := h.bodyDue(most, d.read); int64(d.read) != declared && later >= due+time.Second {
			due = later
			_ = control.SetReadDeadline(began.Add(due)) // it was set before
		}
	}
	return body[:d.read], d, nil
}

// bodyDue is how long after the headers a body may take of which some bytes have come. A
// short one has the whole time: it holds little. A longer one, or one of unknown length, must
// keep up the minimum rate, so that a few bytes a second do not hold a place and memory.
func (h *handler) bodyDue(most int64, read int) time.Duration {
	if h.minBodyRate == 0 || most <= firstStep {
		return h.bodyTimeout
	}
	return min(h.bodyTimeout, h.rateGrace+time.Duration(read)*time.Second/time.Duration(h.minBodyRate))
}

func overloaded() *admission.Refusal {
	return &admission.Refusal{Code: webhook.Overloaded, RetryAfter: time.Second}
}

// unreadable is why a body is not used: it is too long, or broke off, or took too long.
func unreadable(err error) *admission.Refusal {
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return &admission.Refusal{Code: webhook.BodyTooLarge}
	}
	return &admission.Refusal{Code: webhook.BodyUnreadable}
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
