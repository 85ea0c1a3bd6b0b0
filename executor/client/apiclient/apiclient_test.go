package apiclient_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
)

// If the API does not respond, or another server responds, the error is a ConnectionError that
// contains the address and never the token.
func TestConnectionErrors(t *testing.T) {
	elsewhere := http.NewServeMux()
	elsewhere.HandleFunc("/page/", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "<html>")
	})
	elsewhere.HandleFunc("/moved/", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/page/", http.StatusFound)
	})
	elsewhere.HandleFunc("/broken/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10")
		_, _ = io.WriteString(w, "{")
	})
	server := httptest.NewServer(elsewhere)
	defer server.Close()
	for _, base := range []string{
		server.URL + "/page", server.URL + "/moved", server.URL + "/broken", server.URL,
		"http://127.0.0.1:1", "http://%zz",
	} {
		client := apiclient.New(base, "secret-token")
		_, err := client.Plans(t.Context(), apiclient.Page{})
		watching := client.Watch(t.Context(), &apiclient.ExecutionWatch{
			Changed: func(api.Execution) error { return nil },
		})
		for _, err := range []error{err, watching} {
			if _, ok := errors.AsType[*apiclient.ConnectionError](err); !ok ||
				!strings.Contains(err.Error(), base) ||
				strings.Contains(err.Error(), "secret-token") {
				t.Errorf("%s: %v", base, err)
			}
		}
	}
}

func TestTapSeesAnswersAsTheyCame(t *testing.T) {
	const answer = ` {"id":"a","newMember": 1.0}` + "\n"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, answer)
	}))
	defer server.Close()
	seen := ""
	client := apiclient.New(server.URL, "t").WithBodyTap(func(body []byte) { seen = string(body) })
	if a, err := client.Account(t.Context(), "a"); err != nil || a.ID != "a" || seen != answer {
		t.Errorf("%+v, %v, %q", a, err, seen)
	}
}

func TestSenderPresetsAreReadToTheLastPage(t *testing.T) {
	pages := map[string]string{
		"":  `{"items":[{"id":"a"},{"id":"b"}],"nextCursor":"n"}`,
		"n": `{"items":[{"id":"c"}]}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, pages[r.URL.Query().Get("cursor")])
	}))
	defer server.Close()
	all, err := apiclient.New(server.URL, "t").SenderPresets(t.Context())
	if err != nil || len(all.Items) != 3 || all.Items[2].ID != "c" || all.NextCursor != "" {
		t.Errorf("%+v, %v", all, err)
	}
}
