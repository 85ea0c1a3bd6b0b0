package ingress

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/hookstart/hookstart/ingress/internal/admission"
	"github.com/hookstart/hookstart/shared/webhook"
)

// A body is read in steps. The buffer starts with at most initialBodyBuffer bytes and grows by the
// factor bodyBufferGrowthFactor as bytes arrive. A request therefore occupies memory only as its
// body arrives, even if it declares a large Content-Length.
const (
	initialBodyBuffer      = maxPooledBuffer
	bodyBufferGrowthFactor = 4
)

// bodyRateGracePeriod is how long a body may take before its average rate must reach MinBodyRate.
const bodyRateGracePeriod = 5 * time.Second

// bodyReservation records what has been reserved for a request's body: a slot for a request in
// flight, and bytes of memory.
type bodyReservation struct {
	h         *handler
	accountID string
	reserved  int64 // bytes; -1 means that nothing is reserved
	bytesRead int   // bytes received, even if the body was refused
}

// release frees the reserved slot and bytes. It does nothing if nothing is reserved, so it may be
// called at any time and repeatedly.
func (d *bodyReservation) release() {
	if d.reserved >= 0 {
		d.h.limiter.release(d.accountID, d.reserved)
		d.reserved = -1
	}
}

// bodyReader returns a reader for a request's body. If the request declares no length, the reader
// returns an error once the body exceeds the maximum length.
func (h *handler) bodyReader(w http.ResponseWriter, r *http.Request) io.Reader {
	if r.ContentLength < 0 {
		return http.MaxBytesReader(w, r.Body, h.maxBody)
	}
	return r.Body
}

// readBody reads the whole body into the buffers of d. It enforces the limits on requests in flight
// and on bytes in memory, the account's share of these limits, and the time allowed for a body.
func (h *handler) readBody(
	d *delivery,
) (body []byte, reservation bodyReservation, refusal *admission.Refusal) {
	accountID := d.trigger.Workflow.AccountID
	reservation = bodyReservation{h: h, accountID: accountID, reserved: -1}
	declared := d.r.ContentLength // at most maxBody, as checked by parseHead
	maxLength := declared
	if declared < 0 {
		maxLength = h.maxBody
	}
	room := min(maxLength, initialBodyBuffer)
	if !h.limiter.reserveSlot(accountID, room) {
		return nil, reservation, overloadedRefusal()
	}
	reservation.reserved = room
	if declared == 0 {
		return nil, reservation, nil
	}

	d.bodyUnread = false
	control := http.NewResponseController(d.w)
	began := time.Now()
	due := h.bodyTimeLimit(declared, 0)
	// The deadline applies to the body only: net/http removes it once the whole body has been read.
	if err := control.SetReadDeadline(began.Add(due)); err != nil {
		return nil, reservation, &admission.Refusal{Code: webhook.CodeBodyUnreadable}
	}
	source := h.bodyReader(d.w, d.r)
	body = d.bodyOfSize(room)
	for int64(reservation.bytesRead) != declared {
		if reservation.bytesRead == len(body) {
			grown := min(maxLength, int64(reservation.bytesRead)*bodyBufferGrowthFactor)
			if grown == int64(reservation.bytesRead) {
				// The body has no declared length and has reached the maximum. Read one more byte
				// to find out whether it ends here.
				var next [1]byte
				if _, err := io.ReadFull(source, next[:]); !errors.Is(err, io.EOF) {
					return nil, reservation, bodyReadRefusal(err)
				}
				break
			}
			if !h.limiter.reserveMoreBytes(accountID, grown-reservation.reserved) {
				d.bodyUnread = true // the response must not wait for the rest
				return nil, reservation, overloadedRefusal()
			}
			reservation.reserved = grown
			body = d.growBody(grown, reservation.bytesRead)
		}
		n, err := source.Read(body[reservation.bytesRead:])
		reservation.bytesRead += n
		if err != nil && int64(reservation.bytesRead) != declared {
			if errors.Is(err, io.EOF) && declared < 0 {
				break
			}
			return nil, reservation, bodyReadRefusal(err)
		}
		later := h.bodyTimeLimit(declared, reservation.bytesRead)
		if int64(reservation.bytesRead) != declared && (later >= due+time.Second || later < due) {
			due = later
			_ = control.SetReadDeadline(began.Add(due)) // cannot fail: succeeded above
		}
	}
	return body[:reservation.bytesRead], reservation, nil
}

// bodyTimeLimit returns how long the body may take to arrive, counted from the end of the headers.
// declared is the Content-Length, or -1 if there is none, and read is the number of bytes that have
// arrived so far. A short body may take the whole body timeout, because it uses little memory. A
// body without a declared length counts as short until it has filled the initial buffer. A longer
// body must keep the minimum rate. Otherwise, a sender could occupy a slot and memory for long by
// sending a few bytes per second.
func (h *handler) bodyTimeLimit(declared int64, read int) time.Duration {
	isShort := declared <= initialBodyBuffer
	if declared < 0 {
		isShort = read < initialBodyBuffer
	}
	if h.minBodyRate == 0 || isShort {
		return h.bodyTimeout
	}
	return min(h.bodyTimeout,
		h.bodyRateGracePeriod+time.Duration(read)*time.Second/time.Duration(h.minBodyRate))
}

func overloadedRefusal() *admission.Refusal {
	return &admission.Refusal{Code: webhook.CodeOverloaded, RetryAfter: time.Second}
}

// bodyReadRefusal maps a read error to a refusal: either the body is too long, or it is incomplete
// or did not arrive in time.
func bodyReadRefusal(err error) *admission.Refusal {
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return &admission.Refusal{Code: webhook.CodeBodyTooLarge}
	}
	return &admission.Refusal{Code: webhook.CodeBodyUnreadable}
}

// maxDiscardedBodyBytes is the maximum number of bytes that are drained from a body to keep the
// connection usable.
const maxDiscardedBodyBytes = 256 << 10

// allowEarlyResponse allows the response to be sent before the body has been read. Otherwise
// net/http would first read the body of a request that was refused because of its headers, and
// would wait forever for a body that never arrives.
func (h *handler) allowEarlyResponse(w http.ResponseWriter) {
	_ = http.NewResponseController(w).EnableFullDuplex()
}

// discardBody flushes the response and drains the rest of the body so that the client can reuse the
// connection. If the rest is too long or does not arrive in time, it closes the connection, because
// the rest must not be parsed as the next request.
//
// net/http would drain the body after the handler has returned, but in full-duplex mode its
// background reader then interferes with the next request.
func (h *handler) discardBody(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	if control.Flush() != nil || control.SetReadDeadline(time.Now().Add(h.bodyTimeout)) != nil {
		panic(http.ErrAbortHandler)
	}
	if _, err := io.CopyN(io.Discard, r.Body, maxDiscardedBodyBytes); !errors.Is(err, io.EOF) {
		panic(http.ErrAbortHandler) // closes the connection without a log entry
	}
}
