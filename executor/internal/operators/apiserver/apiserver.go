// Package apiserver serves the operators' API over HTTP. Its types are in package api.
package apiserver

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humahttprouter"
	"github.com/julienschmidt/httprouter"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/requestlog"
)

type server struct {
	Config
}

// New returns a handler for all paths below /api/. It is safe for concurrent use.
func New(c Config) http.Handler {
	if c.KeepAliveInterval == 0 {
		c.KeepAliveInterval = defaultKeepAliveInterval
	}
	setUpHuma()
	s := &server{Config: c}
	return s.logRequests(
		s.withCORS(s.requireOperator(refuseInvalidQuery(forceJSONContentType(s.router())))),
	)
}

// refuseInvalidQuery rejects a request whose query string is malformed. net/url would ignore the
// malformed part, and a list without its filter would return everything.
func refuseInvalidQuery(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := url.ParseQuery(r.URL.RawQuery); err != nil {
			writeProblem(w, r, invalidFieldsProblem(api.FieldError{
				Field: "query",
				Problem: err.Error() +
					"; percent-encode everything that is not a letter or a digit",
			}))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// forceJSONContentType makes huma read every body as JSON, regardless of its Content-Type.
// Otherwise, calls with curl -d would fail, because curl declares the body a form.
func forceJSONContentType(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Content-Type", "application/json")
		next.ServeHTTP(w, r)
	})
}

// router returns a handler that routes requests to the API's operations. It neither redirects
// requests nor corrects their paths.
func (s *server) router() http.Handler {
	config := humaConfig()
	router := &httprouter.Router{
		HandleMethodNotAllowed: true,
		MethodNotAllowed:       http.HandlerFunc(methodNotAllowed),
		NotFound:               http.HandlerFunc(notFound),
	}
	// httprouter does not allow a fixed path segment where another route has a parameter. Fixed
	// paths such as /executions/stream therefore have a separate router, which is tried first.
	fixed := &httprouter.Router{
		HandleMethodNotAllowed: true,
		MethodNotAllowed:       http.HandlerFunc(methodNotAllowed),
		NotFound:               router,
	}
	calls, fixedCalls := humahttprouter.New(router, config), humahttprouter.New(fixed, config)
	for _, group := range []huma.API{calls, fixedCalls} {
		group.UseMiddleware(logOperation)
	}
	s.routeAccounts(calls)
	s.routeKeys(calls)
	s.routeWorkflows(calls)
	s.routeRefusals(calls)
	s.routeTriggers(calls)
	s.routeSenders(calls)
	s.routeExecutions(calls)
	s.routeExecutionActions(calls, fixedCalls)
	s.routeInstallation(calls)
	s.routeDeadLetters(calls)
	s.routeBackup(calls)
	s.routeEvents(fixedCalls)
	document := sync.OnceValue(func() []byte { return openAPIDocument(config.OpenAPI) })
	router.GET(api.PathPrefix+"/openapi.json", func(
		w http.ResponseWriter, r *http.Request, _ httprouter.Params,
	) {
		requestlog.FromContext(r.Context()).Fields["operation"] = "get-openapi"
		for name := range r.URL.Query() {
			writeProblem(w, r, invalidFieldsProblem(api.FieldError{
				Field:   name,
				Problem: "is no parameter of this call",
			}))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(document())
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// httprouter matches the unescaped path. An escaped slash would act as a separator, so that
		// an ID that contains one would lead to another path. No ID contains a slash.
		if strings.Contains(strings.ToUpper(r.URL.RawPath), "%2F") {
			notFound(w, r)
			return
		}
		fixed.ServeHTTP(w, r)
	})
}

func notFound(w http.ResponseWriter, r *http.Request) {
	writeProblem(w, r,
		newProblem(api.CodeNotFound,
			"The API has no such path. "+api.PathPrefix+"/openapi.json lists what it has."))
}

func methodNotAllowed(w http.ResponseWriter, r *http.Request) {
	// httprouter adds OPTIONS to the allowed methods, although no path allows it.
	allowed := strings.Split(w.Header().Get("Allow"), ", ")
	list := strings.Join(slices.DeleteFunc(allowed, func(method string) bool {
		return method == http.MethodOptions
	}), ", ")
	w.Header().Set("Allow", list)
	writeProblem(w, r, newProblem(api.CodeMethodNotAllowed, "This path takes "+list+"."))
}
