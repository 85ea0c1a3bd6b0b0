package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/executor/internal/operate"
	"github.com/hookstart/hookstart/shared/execution"
)

// event is what one request leaves in the log. No path, query, header or body gets into
// it: any of them may hold a token, if only by mistake.
type event struct {
	start     time.Time
	method    string
	operation string            // "": the path or the method is not known
	ids       map[string]string // what the call is about, by the log's field
	code      string            // of the problem
	err       error             // behind the problem; not for the client

	written    bool
	statusCode int
}

type eventKey struct{}

// eventOf is the event of the request whose context this is. There is always one.
func eventOf(ctx context.Context) *event {
	if e, ok := ctx.Value(eventKey{}).(*event); ok {
		return e
	}
	return &event{} // a context from elsewhere: nobody reads it
}

// observed gives each request its event, logs it at the end, and catches what panics.
func (s *server) observed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e := &event{start: time.Now(), method: knownMethod(r.Method)}
		w = &recordingWriter{ResponseWriter: w, event: e}
		// Answers hold tokens.
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		defer s.end(e, w)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), eventKey{}, e)))
	})
}

func (s *server) end(e *event, w http.ResponseWriter) {
	if p := recover(); p != nil {
		e.err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		if e.written {
			e.code = api.CodeInternal
			defer panic(http.ErrAbortHandler) // so that the client does not take a part for the whole
		} else {
			e.answer(w, newProblem(api.CodeInternal, ""))
		}
	}
	s.logEvent(e)
}

func (s *server) logEvent(e *event) {
	fields := logrus.Fields{
		"method":      e.method,
		"status":      e.status(),
		"duration_ms": float64(time.Since(e.start).Microseconds()) / 1000,
	}
	put := func(name, value string) {
		if value != "" {
			fields[name] = value
		}
	}
	put("operation", e.operation)
	put("code", e.code)
	if e.status() < http.StatusBadRequest || e.status() >= http.StatusInternalServerError {
		// What a client got wrong may be anything.
		for name, id := range e.ids {
			if execution.ValidName(id) && !operate.HoldsToken(id) && !s.SignIn.IsSecret(id) {
				fields[name] = id
			}
		}
	}
	if e.err != nil {
		fields["error"] = e.err.Error()
	}
	log := s.Log.WithFields(fields)
	if e.status() >= http.StatusInternalServerError {
		log.Warn("API call")
		return
	}
	log.Info("API call")
}

// fail notes the problem that the client gets. Only for 5xx the cause is of interest.
func (e *event) fail(p *problem, cause error) {
	e.code = p.Code
	if p.Status >= http.StatusInternalServerError {
		e.err = errors.Join(e.err, cause)
	}
}

// answer answers with a problem where huma does not.
func (e *event) answer(w http.ResponseWriter, p *problem) {
	e.fail(p, nil)
	p.write(w)
}

func (e *event) status() int {
	if !e.written {
		return http.StatusOK
	}
	return e.statusCode
}

// knownMethod keeps out of the log what a client made up.
func knownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return method
	default:
		return "other"
	}
}

// recordingWriter notes the status. Unwrap gives http.ResponseController the rest.
type recordingWriter struct {
	http.ResponseWriter
	event *event
}

func (w *recordingWriter) WriteHeader(status int) {
	if !w.event.written {
		w.event.written, w.event.statusCode = true, status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recordingWriter) Write(data []byte) (int, error) {
	if !w.event.written {
		w.event.written, w.event.statusCode = true, http.StatusOK
	}
	return w.ResponseWriter.Write(data)
}

func (w *recordingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// noteOperation is a middleware that says in the event which call it is.
func noteOperation(ctx huma.Context, next func(huma.Context)) {
	e, op := eventOf(ctx.Context()), ctx.Operation()
	e.operation = op.OperationID
	e.ids = map[string]string{"node_id": ctx.Param("nodeId")}
	switch op.Tags[0] {
	case tagAccounts:
		e.ids["account_id"] = ctx.Param("id")
	case tagWorkflows, tagTriggers:
		e.ids["workflow_id"] = ctx.Param("id")
	case tagExecutions:
		e.ids["execution_id"] = ctx.Param("id")
	}
	next(ctx)
}
