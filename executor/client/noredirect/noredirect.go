// Package noredirect creates the HTTP clients of our programs. They follow no redirects: a request
// may contain a token or a secret, and must go only to the server that it names.
package noredirect

import (
	"net/http"
	"time"
)

// NewClient returns a client that returns a redirect as the response instead of following it. If
// transport is nil, the client uses http.DefaultTransport. timeout limits a whole request,
// including its body; 0 means no limit.
func NewClient(transport http.RoundTripper, timeout time.Duration) *http.Client {
	return &http.Client{
		Transport: transport,
		Timeout:   timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
}
