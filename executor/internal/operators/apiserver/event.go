package apiserver

import (
	"context"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/operators/requestlog"
	"github.com/hookstart/hookstart/shared/execution"
)

// logRequests writes one log event per request, and sends a response if a handler panics.
func (s *server) logRequests(next http.Handler) http.Handler {
	noting := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requestlog.FromContext(r.Context()).Fields["method"] = methodLabel(r.Method)
		// Responses may contain tokens, so they must not be stored.
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(w, r)
	})
	failed := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		writeProblem(w, r, newProblem(api.CodeInternal, ""))
	})
	return requestlog.Handler(s.Log, "API call", noting, failed, s.redactAndChooseLevel)
}

// idLogFields lists the log fields that hold IDs sent by clients.
var idLogFields = []string{"node_id", "account_id", "workflow_id", "execution_id"}

func (s *server) redactAndChooseLevel(_ *http.Request, e *requestlog.Event) logrus.Level {
	isClientError := e.Status() >= http.StatusBadRequest &&
		e.Status() < http.StatusInternalServerError
	for _, name := range idLogFields {
		// An invalid request may contain any text as an ID, even a secret, so the text must not be
		// logged.
		id, _ := e.Fields[name].(string)
		if isClientError || !execution.ValidName(id) || operate.ContainsToken(id) ||
			s.SignIn.MatchesAdminToken(id) {
			delete(e.Fields, name)
		}
	}
	if e.Status() >= http.StatusInternalServerError {
		return logrus.WarnLevel
	}
	return logrus.InfoLevel
}

// logProblem adds the problem that the client receives to the log event. If the status is 5xx, it
// also adds cause, the error behind the problem.
func logProblem(ctx context.Context, p *problem, cause error) {
	e := requestlog.FromContext(ctx)
	e.Fields["code"] = p.Code
	if p.Status >= http.StatusInternalServerError {
		e.Err = errors.Join(e.Err, cause)
	}
}

// writeProblem sends a problem as the response to a request that huma does not handle.
func writeProblem(w http.ResponseWriter, r *http.Request, p *problem) {
	logProblem(r.Context(), p, nil)
	p.write(w)
}

// methodLabel returns the HTTP method, or "other" for an unknown method, because text chosen by a
// client must not be logged.
func methodLabel(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodOptions:
		return method
	default:
		return "other"
	}
}

// logOperation is a middleware that records the call's name and IDs in the log event.
func logOperation(ctx huma.Context, next func(huma.Context)) {
	fields, op := requestlog.FromContext(ctx.Context()).Fields, ctx.Operation()
	fields["operation"] = op.OperationID
	fields["node_id"] = ctx.Param("nodeId")
	switch op.Tags[0] {
	case tagAccounts:
		fields["account_id"] = ctx.Param("id")
	case tagWorkflows, tagTriggers:
		fields["workflow_id"] = ctx.Param("id")
	case tagExecutions:
		fields["execution_id"] = ctx.Param("id")
	}
	next(ctx)
}
