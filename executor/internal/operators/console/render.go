package console

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"html/template"
	"io/fs"
	"maps"
	"net/http"
	"strings"
	"sync"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/operators/signin"
)

//go:embed templates
var templateFiles embed.FS

// pageTemplates maps the name of each page to its template. Each template includes the layout and
// the shared parts.
type pageTemplates map[string]*template.Template

// viewer holds the properties of a caller that templates depend on: the role, and whether the
// caller has access to all accounts.
type viewer struct {
	role            operate.Role // "" means that the visitor has not signed in
	seesAllAccounts bool
}

func viewerOf(caller operate.Caller) viewer {
	return viewer{caller.Role, caller.Role != "" && caller.AccountID == ""}
}

// parsePagesByViewer returns, for each possible viewer, a function that returns the pages. The
// pages for visitors who have not signed in are parsed immediately, so that an error in a template
// is noticed at startup. The pages for any other viewer are parsed when such a viewer first
// requests a page.
func parsePagesByViewer(assetsPath string) map[viewer]func() pageTemplates {
	strangers := parsePages(assetsPath, viewer{})
	all := map[viewer]func() pageTemplates{{}: func() pageTemplates { return strangers }}
	for _, role := range operate.Roles() {
		for _, wide := range []bool{false, true} {
			viewer := viewer{role, wide}
			all[viewer] = sync.OnceValue(func() pageTemplates {
				return parsePages(assetsPath,
					viewer)
			})
		}
	}
	return all
}

// page is the template data of the layout, which all pages share.
type page struct {
	Title       string
	Section     string // section that the navigation marks as current; "" means none
	SignedIn    bool
	Caller      operate.Caller
	RedirectURL string // URL that the browser loads immediately; "" means none
	Notice      string // message about a form that has just been saved, shown once; "" means none
	// RunAgain is set if the page asks whether to run an execution again with its own request or
	// with the sample payload.
	RunAgain *runAgainDialog
	Body     any
}

func parsePages(assetsPath string, viewer viewer) pageTemplates {
	functions := template.FuncMap{
		"asset":  func(name string) string { return assetsPath + "/" + name },
		"may":    func(role string) bool { return viewer.role.Includes(operate.Role(role)) },
		"fields": func(names ...string) []string { return names },
		"wide":   func() bool { return viewer.seesAllAccounts },
		"json": func(value any) (string, error) {
			text, err := json.Marshal(value)
			return string(text), err
		},
	}
	maps.Copy(functions, templateFuncs)
	shared := template.Must(template.New("").Funcs(functions).ParseFS(templateFiles,
		"templates/layout.html", "templates/parts/*.html"))
	files, err := fs.Glob(templateFiles, "templates/*.html")
	if err != nil {
		panic(err) // cannot fail: the pattern is valid
	}
	all := pageTemplates{}
	for _, file := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(file, "templates/"), ".html")
		if name != "layout" {
			all[name] = template.Must(template.Must(shared.Clone()).ParseFS(templateFiles, file))
		}
	}
	all["fragment"] = shared
	return all
}

// render responds with a page. If the template fails, it responds with an error page, but never
// with part of the page.
func (c *Console) render(w http.ResponseWriter, r *http.Request, status int, name string, p page) {
	p.Caller = callerOf(c, r)
	p.SignedIn = p.Caller != operate.Caller{}
	p.RunAgain = confirmDialogData[runAgainDialog](r.Context())
	if failed := postedFormFromContext(r.Context()); failed != nil && status == http.StatusOK {
		status = failed.responseStatus
	} else if p.SignedIn && status == http.StatusOK && r.Method == http.MethodGet {
		p.Notice = c.SignIn.TakeNotice(w, r)
	}
	c.writeTemplate(w, r, status, name, "layout", p)
}

// pageHandler returns the handler of the page with the given name. For each request, data returns
// the page's body. p holds the other fields of the page.
func pageHandler[T any](
	c *Console, name string, p page, data func(*http.Request) (T, error),
) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := data(r)
		if err != nil {
			c.renderCallError(w, r, err)
			return
		}
		shown := p
		shown.Body = body
		c.render(w, r, http.StatusOK, name, shown)
	}
}

// fragmentHandler returns the handler for a part of a page that the browser loads separately. name
// is the name of the page, part is the name of the part's template, and data returns the template
// data.
func fragmentHandler[T any](
	c *Console, name, part string, data func(*http.Request) (T, error),
) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := data(r)
		if err != nil {
			c.renderCallError(w, r, err)
			return
		}
		c.writeTemplate(w, r, http.StatusOK, name, part, body)
	}
}

// callerOf returns the caller who has requested a page. It returns the zero Caller if nobody is
// signed in, or if the session cannot be checked now.
func callerOf(c *Console, r *http.Request) operate.Caller {
	if caller := signin.Caller(r.Context()); caller.Kind != "" {
		return caller
	}
	caller, err := c.SignIn.SessionCaller(r)
	if err != nil {
		return operate.Caller{}
	}
	return caller
}

func (c *Console) writeTemplate(
	w http.ResponseWriter, r *http.Request, status int, name, part string, data any,
) {
	var text bytes.Buffer
	if err := c.pages[viewerOf(callerOf(c, r))]()[name].ExecuteTemplate(&text, part,
		data); err != nil {
		noteInLogEvent(r, name, err)
		if name != "problem" {
			c.renderError(w, r, http.StatusInternalServerError, "", "")
		}
		return
	}
	if part != "layout" {
		name = "fragment"
	}
	noteInLogEvent(r, name, nil)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = text.WriteTo(w)
	}
}

// errorPage is the template data of an error page.
type errorPage struct {
	Status        int
	Title, Detail string
}

// renderError responds with an error page. If title is "", the page reports an internal error, and
// detail is ignored.
func (c *Console) renderError(
	w http.ResponseWriter,
	r *http.Request,
	status int,
	title, detail string,
) {
	if title == "" {
		title, detail = "Internal error",
			"The page could not be rendered. The executor's log says why."
	}
	c.render(w, r, status, "problem", page{Title: title, Body: errorPage{status, title, detail}})
}

// renderCallError responds with the error page for an error that an operation has returned.
func (c *Console) renderCallError(w http.ResponseWriter, r *http.Request, err error) {
	refused, ok := errors.AsType[*operate.Error](err)
	switch {
	case isNotFound(err):
		c.renderError(w, r, http.StatusNotFound, "Not found", refused.Detail)
	case errors.Is(err, context.DeadlineExceeded):
		noteInLogEvent(r, "", err)
		c.renderError(w, r, http.StatusServiceUnavailable, "Timeout",
			"The database or NATS did not answer in time. Try again in a moment.")
	case ok && refused.Code == api.CodeForbidden:
		c.renderError(w, r, http.StatusForbidden, "Forbidden", refused.Detail)
	case ok && refused.Code == api.CodeUnavailable:
		noteInLogEvent(r, "", err)
		c.renderError(w, r, http.StatusServiceUnavailable, "Unavailable",
			"NATS or the database cannot be used now. Try again in a moment.")
	default:
		noteInLogEvent(r, "", err)
		c.renderError(w, r, http.StatusInternalServerError, "", "")
	}
}

func isNotFound(err error) bool { return api.IsCode(err, api.CodeNotFound) }

func isInvalid(err error) bool { return api.IsCode(err, api.CodeInvalid) }
