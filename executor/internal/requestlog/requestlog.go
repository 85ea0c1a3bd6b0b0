// Package requestlog writes one log event for each request, and recovers from panics of handlers.
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

// Event is the log event of one request. It must not contain a path, query, header or body, since
// each of them may hold a token.
type Event struct {
	// Fields are logged beside the status and the duration.
	Fields logrus.Fields
	// Err is the internal cause of a failure. It is logged and not sent to the client.
	Err error

	began  time.Time
	status int // 0 means that nothing is written yet
}

// Status returns the status of the answer.
func (e *Event) Status() int { return max(e.status, http.StatusOK) }

type key struct{}

// FromContext returns the event of the request with this context. There always is one.
func FromContext(ctx context.Context) *Event {
	if e, ok := ctx.Value(key{}).(*Event); ok {
		return e
	}
	// The context is not a request's: the event is not logged.
	return &Event{Fields: logrus.Fields{}}
}

// Handler gives each request its event and recovers from panics. If nothing was written before a
// panic, failed answers the request; otherwise the connection is cut, so that the client does not
// accept half an answer. At the end, level returns the level of the event and may change its
// fields.
func Handler(
	log logrus.FieldLogger, message string, next, failed http.Handler, level func(
		*http.Request, *Event,
	) logrus.Level,
) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e := &Event{Fields: logrus.Fields{}, began: time.Now()}
		w, r = &writer{w, e}, r.WithContext(context.WithValue(r.Context(), key{}, e))
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
			gone := e.gone(r)
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

// gone reports whether a request failed only because its client had left. The status that is logged
// then was never received.
func (e *Event) gone(r *http.Request) bool {
	if r.Context().Err() == nil || !errors.Is(e.Err, context.Canceled) {
		return false
	}
	e.Err = nil
	e.Fields["client_gone"] = true
	return true
}

func (e *Event) log(log logrus.FieldLogger, message string, level logrus.Level) {
	e.Fields["status"] = e.Status()
	e.Fields["duration_ms"] = float64(time.Since(e.began).Microseconds()) / 1000
	if e.Err != nil {
		e.Fields["error"] = e.Err.Error()
	}
	log.WithFields(e.Fields).Log(level, message)
}

// writer remembers the status. Its Unwrap method lets http.ResponseController reach everything
// else.
type writer struct {
	http.ResponseWriter
	event *Event
}

func (w *writer) WriteHeader(status int) {
	if w.event.status == 0 {
		w.event.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *writer) Write(data []byte) (int, error) {
	if w.event.status == 0 {
		w.event.status = http.StatusOK
	}
	return w.ResponseWriter.Write(data)
}

func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }
