// Package requestlog writes one log event per request, and recovers from panics in handlers.
package requestlog

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/sirupsen/logrus"
)

// Event is the log event of one request. It must not contain a path, query, header or body, because
// any of them may contain a token.
type Event struct {
	// Fields are logged in addition to the status and the duration.
	Fields logrus.Fields
	// Err is the internal cause of a failure. It is logged but not sent to the client.
	Err error

	startedAt time.Time
	status    int // 0 if nothing has been written yet
}

// Status returns the status of the response, or 200 if nothing has been written yet.
func (e *Event) Status() int { return max(e.status, http.StatusOK) }

type eventKey struct{}

// FromContext returns the event of the request that a context belongs to. It never returns nil.
func FromContext(ctx context.Context) *Event {
	if e, ok := ctx.Value(eventKey{}).(*Event); ok {
		return e
	}
	// The context does not belong to a request. Return an event that is never logged.
	return &Event{Fields: logrus.Fields{}}
}

// Handler returns a handler that passes requests to next and logs one Event per request, with the
// given message. If next panics before it has written anything, Handler calls failed to write the
// response. If next panics later, Handler aborts the connection, so that the client does not accept
// a partial response. After each request, Handler calls level, which returns the log level of the
// event and may change the event's fields.
func Handler(
	log logrus.FieldLogger, message string, next, failed http.Handler, level func(
		*http.Request, *Event,
	) logrus.Level,
) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e := &Event{Fields: logrus.Fields{}, startedAt: time.Now()}
		w, r = &statusRecorder{w, e}, r.WithContext(context.WithValue(r.Context(), eventKey{}, e))
		defer func() {
			p := recover()
			if p != nil {
				e.Err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
				if e.status != 0 {
					defer panic(http.ErrAbortHandler)
				} else {
					failed.ServeHTTP(w, r)
				}
			}
			gone := e.recordClientGone(r)
			important := level(r, e)
			switch {
			case p != nil:
				important = logrus.WarnLevel
			case gone && important < logrus.InfoLevel: // lower is more important
				important = logrus.InfoLevel
			}
			e.log(log, message, important)
		}()
		next.ServeHTTP(w, r)
	})
}

// recordClientGone reports whether a request failed only because its client had disconnected. If
// so, it replaces the error with the field client_gone, which shows that the client never received
// the logged status.
func (e *Event) recordClientGone(r *http.Request) bool {
	if r.Context().Err() == nil || !errors.Is(e.Err, context.Canceled) {
		return false
	}
	e.Err = nil
	e.Fields["client_gone"] = true
	return true
}

func (e *Event) log(log logrus.FieldLogger, message string, level logrus.Level) {
	e.Fields["status"] = e.Status()
	e.Fields["duration_ms"] = float64(time.Since(e.startedAt).Microseconds()) / 1000
	if e.Err != nil {
		e.Fields["error"] = e.Err.Error()
	}
	log.WithFields(e.Fields).Log(level, message)
}

// statusRecorder is a ResponseWriter that records the status of the response in the request's
// event. Its Unwrap method gives http.ResponseController access to the underlying writer's other
// features, such as flushing.
type statusRecorder struct {
	http.ResponseWriter
	event *Event
}

func (w *statusRecorder) WriteHeader(status int) {
	if w.event.status == 0 {
		w.event.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusRecorder) Write(data []byte) (int, error) {
	if w.event.status == 0 {
		w.event.status = http.StatusOK
	}
	return w.ResponseWriter.Write(data)
}

func (w *statusRecorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }
