// Package console is the operators' web interface. The server renders its pages and handles its
// forms, so they work without JavaScript, which only makes them quicker to use. There is one
// exception: tokens and captured secrets are shown only with JavaScript, because scripts read them
// from the operators' API. Browsers load nothing from other hosts.
package console

import (
	"net/http"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/signin"
)

// Console serves the pages. It is safe for concurrent use.
type Console struct {
	Config
	assets  assets
	pages   map[viewer]func() pageTemplates
	handler http.Handler
}

// New returns a Console with the given dependencies.
func New(config Config) *Console {
	c := &Console{Config: config, assets: loadAssets()}
	c.pages = parsePagesByViewer(c.assets.path)
	otherSite := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.renderError(w, r, http.StatusForbidden, "Refused", "The request came from another site.")
	})
	c.handler = c.logRequests(withSecurityHeaders(c.SignIn.RequireSameOrigin(c.routes(),
		otherSite)))
	return c
}

// ServeHTTP serves the pages, their forms and their assets: every path outside the API.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) { c.handler.ServeHTTP(w, r) }

func (c *Console) routes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET "+c.assets.path+"/", c.assets)
	mux.HandleFunc("GET /favicon.ico", http.NotFound) // pages link to their icon
	mux.HandleFunc("GET /sign-in", c.showSignIn)
	mux.HandleFunc("POST /sign-in", c.signInByToken)
	mux.HandleFunc("POST /sign-out", c.signOut)
	mux.HandleFunc("GET /sign-in/provider", c.redirectToProvider)
	mux.HandleFunc("GET "+signin.CallbackPath, c.finishProviderSignIn)
	for pattern, handle := range map[string]http.HandlerFunc{
		"GET /{$}": pageHandler(c, "overview", page{Title: "Overview", Section: "overview"},
			c.overview),
		"GET /workflows": pageHandler(c, "workflows",
			page{Title: "Workflows", Section: "workflows"}, c.workflowList),
		"GET /new-workflow":    c.showNewWorkflow(),
		"GET /workflows/{id}":  c.showWorkflow,
		"GET /executions":      c.showExecutions,
		"GET /executions/{id}": c.showExecution,
		"GET /dead-letters":    c.deadLettersHandler(),
		"GET /queues":          c.queuesHandler(),
		"GET /refusals": pageHandler(c, "refusals", page{Title: "Refusals", Section: "refusals"},
			c.refusalList),
		"GET /accounts": c.accountsHandler(),
		"GET /keys":     c.keysHandler(),
		"GET /audit": pageHandler(c, "audit", page{Title: "Audit", Section: "audit"},
			c.auditList),

		"POST /fragments/filter":    c.tryFilter,
		"GET /fragments/execution":  c.executionFragment,
		"GET /fragments/executions": fragmentHandler(c, "fragment", "newest", c.newestExecutions),
		"GET /fragments/numbers":    fragmentHandler(c, "fragment", "numbers", c.overviewNumbers),
		"GET /fragments/queues":     fragmentHandler(c, "queues", "queue-rows", c.queueList),
		"GET /fragments/reach": fragmentHandler(c, "fragment", "reach",
			func(r *http.Request) (api.PublicURL, error) {
				// This check may take seconds, so the browser requests its result separately.
				return c.Operate.CheckPublicURL(r.Context(), signin.Caller(r.Context()))
			}),
		"GET /fragments/refusals": fragmentHandler(c, "fragment", "refusals",
			func(r *http.Request) (workflowRefusals, error) {
				return c.workflowRefusals(r.Context(), r.URL.Query().Get("workflow"))
			}),
		"GET /fragments/sender": fragmentHandler(c, "fragment", "preset-fields",
			c.requestedPresetFields),
		"GET /fragments/workflow": c.workflowFragment,
		"/":                       c.showNotFound,
	} {
		mux.HandleFunc(pattern, c.requireSession(handle))
	}
	c.routeForms(mux)
	return mux
}

func (c *Console) showNotFound(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		c.renderMethodNotAllowed(w, r, "GET, HEAD")
		return
	}
	c.renderError(w, r, http.StatusNotFound, "There is no such page",
		"The address may be mistyped, or the page's subject was deleted.")
}

// renderMethodNotAllowed responds to a request whose method its address does not support. allowed
// lists the methods that the address supports.
func (c *Console) renderMethodNotAllowed(w http.ResponseWriter, r *http.Request, allowed string) {
	w.Header().Set("Allow", allowed)
	c.renderError(w, r, http.StatusMethodNotAllowed, "Method not allowed",
		"Pages are read-only. Their forms have addresses of their own; programs send changes to "+
			"the operators' API, below /api/v1.")
}
