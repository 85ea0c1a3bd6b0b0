package console

import (
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/sirupsen/logrus"
)

// observed logs one event for each request, and catches what panics. Paths and queries
// stay out: a sign-in link is in one, and anything may be pasted into the other.
func (c *Console) observed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began, answer := time.Now(), &answer{ResponseWriter: w}
		defer func() {
			if p := recover(); p != nil {
				answer.err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
				if answer.status != 0 {
					c.logRequest(r, answer, began)
					panic(http.ErrAbortHandler) // so that nobody takes a part for the whole
				}
				c.fail(answer, r, http.StatusInternalServerError, "", "")
			}
			c.logRequest(r, answer, began)
		}()
		next.ServeHTTP(answer, r)
	})
}

func (c *Console) logRequest(r *http.Request, a *answer, began time.Time) {
	fields := logrus.Fields{
		"page": a.page, "status": max(a.status, http.StatusOK),
		"duration_ms": float64(time.Since(began).Microseconds()) / 1000,
	}
	if a.err != nil && r.Context().Err() == nil {
		fields["error"] = a.err.Error()
		c.Log.WithFields(fields).Warn("console")
		return
	}
	if a.page == "" { // an asset, or a redirect
		c.Log.WithFields(fields).Debug("console")
		return
	}
	c.Log.WithFields(fields).Info("console")
}

// answer notes what the log says of it.
type answer struct {
	http.ResponseWriter
	status int
	page   string
	err    error
}

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(data []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	return a.ResponseWriter.Write(data)
}

func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// note says in the request's event which page it is, and what went wrong.
func note(w http.ResponseWriter, page string, err error) {
	if a, is := w.(*answer); is {
		a.page = page
		if err != nil {
			a.err = err
		}
	}
}
