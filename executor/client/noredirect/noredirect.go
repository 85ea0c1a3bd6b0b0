// Package noredirect creates the HTTP clients of our programs. They follow no redirects: a request
// may contain a token or a secret, and must go only to the server that it names. WithoutURL keeps
// the URL out of their errors for the same reason.
package noredirect

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
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

// WithoutURL returns the cause of an error of http.Client or http.NewRequest, without the method
// and the URL with which such an error begins, because a URL may contain a token or a password. It
// returns any other error unchanged.
func WithoutURL(err error) error {
	if outer, ok := errors.AsType[*url.Error](err); ok {
		return cmp.Or(outer.Err, errors.New("no cause is known"))
	}
	return err
}
