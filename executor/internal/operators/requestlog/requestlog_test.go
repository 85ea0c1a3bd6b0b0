package requestlog_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/executor/internal/operators/requestlog"
	"github.com/hookstart/hookstart/shared/ops/logtest"
)

// If a handler panics before it has written anything, the client gets an error response. If it
// panics later, the connection is aborted. The log has one line for each request, with the fields
// that the handler set.
func TestOneLineForEachRequest(t *testing.T) {
	var text logtest.Buffer
	log := logrus.New()
	log.SetOutput(&text)
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requestlog.FromContext(r.Context()).Fields["page"] = r.URL.Path[1:]
		if r.URL.Path != "/early" {
			w.WriteHeader(http.StatusAccepted)
		}
		if r.URL.Path != "/well" {
			panic("the cause")
		}
	})
	failed := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
	})
	handler := requestlog.Handler(log, "request", next, failed, func(
		*http.Request, *requestlog.Event,
	) logrus.Level {
		return logrus.InfoLevel
	})
	ask := func(path string) (status int, cut any) {
		w := httptest.NewRecorder()
		defer func() { status, cut = w.Code, recover() }()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return
	}
	for path, want := range map[string]struct {
		status int
		cut    any
		line   []string
	}{
		"/well": {http.StatusAccepted, nil, []string{"level=info", "status=202"}},
		"/early": {
			http.StatusInternalServerError, nil, []string{
				"level=warning", "status=500", "the cause",
			},
		},
		"/late": {
			http.StatusAccepted, http.ErrAbortHandler, []string{
				"level=warning", "status=202", "the cause",
			},
		},
	} {
		before := len(text.String())
		if status, cut := ask(path); status != want.status || cut != want.cut {
			t.Errorf("%s: %d, cut off by %v", path, status, cut)
		}
		line := text.String()[before:]
		for _, part := range append(want.line, "page="+path[1:], "duration_ms=") {
			if !strings.Contains(line, part) {
				t.Errorf("%s: no %s in %q", path, part, line)
			}
		}
		if strings.Count(line, "\n") != 1 {
			t.Errorf("%s: %q", path, line)
		}
	}
}

// If a read fails because its client has disconnected, the log contains no error. If a change fails
// for another reason after its client has disconnected, the log contains the error.
func TestClientsThatGoAway(t *testing.T) {
	for what, c := range map[string]struct {
		cause error
		want  []string
		not   string
	}{
		"a read that ended with its client": {
			fmt.Errorf("read: %w", context.Canceled), []string{
				"level=info", "client_gone=true", "status=503",
			}, "error=",
		},
		"a change that failed by itself": {
			errors.New("the cause"),
			[]string{"level=warning", "the cause", "status=503"},
			"client_gone",
		},
	} {
		var text logtest.Buffer
		log := logrus.New()
		log.SetOutput(&text)
		ctx, leave := context.WithCancel(t.Context())
		next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			leave()
			requestlog.FromContext(r.Context()).Err = c.cause
			w.WriteHeader(http.StatusServiceUnavailable)
		})
		handler := requestlog.Handler(log, "request", next, next, func(
			*http.Request, *requestlog.Event,
		) logrus.Level {
			return logrus.WarnLevel
		})
		handler.ServeHTTP(httptest.NewRecorder(),
			httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		for _, part := range c.want {
			if !strings.Contains(text.String(), part) {
				t.Errorf("%s: no %s in %q", what, part, text.String())
			}
		}
		if strings.Contains(text.String(), c.not) {
			t.Errorf("%s: %s in %q", what, c.not, text.String())
		}
	}
}
