package noredirect_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/hookstart/hookstart/executor/client/noredirect"
)

func TestWithoutURL(t *testing.T) {
	t.Parallel()
	cause := errors.New("a cause")
	for _, err := range []error{
		&url.Error{Op: "Post", URL: "http://a/secret", Err: cause},
		fmt.Errorf("wrapped: %w", &url.Error{Op: "Post", URL: "http://a/secret", Err: cause}),
		cause,
	} {
		if got := noredirect.WithoutURL(err); got.Error() != cause.Error() {
			t.Errorf("%v, want only the cause", got)
		}
	}
	_, err := http.NewRequest(http.MethodPost, "http://a:b/secret", nil)
	if got := noredirect.WithoutURL(err).Error(); strings.Contains(got, "secret") {
		t.Error(got)
	}
}

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
