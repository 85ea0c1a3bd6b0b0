package console

import (
	"net/http"

	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/executor/internal/operators/requestlog"
)

// logRequests logs one event per request, and responds with an error page after a panic.
func (c *Console) logRequests(next http.Handler) http.Handler {
	failed := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.renderError(w, r, http.StatusInternalServerError, "", "")
	})
	return requestlog.Handler(c.Log, "console", next, failed, logLevel)
}

func logLevel(_ *http.Request, e *requestlog.Event) logrus.Level {
	_, isPage := e.Fields["page"]
	switch {
	case e.Err != nil:
		return logrus.WarnLevel
	case !isPage: // an asset, or a redirect
		e.Fields["page"] = ""
		return logrus.DebugLevel
	default:
		return logrus.InfoLevel
	}
}

// noteInLogEvent records the page and the error in the request's log event.
func noteInLogEvent(r *http.Request, page string, err error) {
	e := requestlog.FromContext(r.Context())
	e.Fields["page"] = page
	if err != nil {
		e.Err = err
	}
}
