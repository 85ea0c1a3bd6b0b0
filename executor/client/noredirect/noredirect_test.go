package noredirect_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/hookstart/hookstart/executor/client/noredirect"
)

func TestNewClientFollowsNoRedirect(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(
		func(http.ResponseWriter, *http.Request) {
			t.Error("the client followed the redirect")
		}))
	t.Cleanup(elsewhere.Close)
	server := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	t.Cleanup(server.Close)
	response, err := noredirect.NewClient(nil, 0).Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusTemporaryRedirect {
		t.Errorf("%s, want the redirect itself", response.Status)
	}
}
