package target

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hookstart/hookstart/executor/client/noredirect"
	"github.com/hookstart/hookstart/shared/runner"
)

// maxRetryAfter is the maximum delay that a Retry-After header can request. Longer delays are
// shortened to it.
const maxRetryAfter = time.Hour

// HTTPHandler sends each execution to a URL. If there is a secret, requests are signed as specified
// by Standard Webhooks. The ID of the signed message is the execution ID, which is the same in each
// attempt. The result of the execution depends on the response:
//
//	2xx                           succeeded, with the body as the output
//	408, 425, 429, 5xx            tried again, after the delay in Retry-After, if any
//	no response, or a broken one  tried again
//	any other response            failed, with the beginning of the body; no redirect is followed
//	the output is too long        failed
type HTTPHandler struct {
	// URL is the URL to which executions are sent. Errors never contain its user, password, path or
	// query.
	URL *url.URL
	// Secrets holds the signing secrets. A request is signed with each of them, because during a
	// rotation the target may have only one of them. If there are none, requests are not signed.
	Secrets []Secret
	// RawBody means that the original request's body is sent instead of the input as JSON, and that
	// its headers are sent under their own names, except those that must not be forwarded: see
	// setHeaders.
	RawBody bool
	// MaxOutputBytes is the maximum size of a response body, in bytes.
	MaxOutputBytes int64
	// Client sends the requests. It must not follow redirects. Required.
	Client *http.Client
}

// NewClient returns a client that does not follow redirects, and that keeps enough idle connections
// for the given number of concurrent requests.
func NewClient(concurrency int) *http.Client {
	//nolint:forcetypeassert,errcheck // net/http's own
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = concurrency
	return noredirect.NewClient(transport, 0)
}

// Handle sends one execution to the URL and returns the body of the response as the output. It
// implements runner.Handler.
func (p *HTTPHandler) Handle(ctx context.Context, e runner.Execution) (any, error) {
	body := e.Input
	if p.RawBody {
		body = e.Payload.Body
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL.String(),
		bytes.NewReader(body))
	if err != nil {
		return nil, runner.Permanent(errors.New("the URL cannot be sent to"))
	}
	p.setHeaders(request.Header, e)
	Sign(request.Header, p.Secrets, e.ID, time.Now(), body)
	response, err := p.Client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("no answer of %s: %w", p.URL.Host, noredirect.WithoutURL(err))
	}
	defer func() { _ = response.Body.Close() }()
	received, err := io.ReadAll(io.LimitReader(response.Body, p.MaxOutputBytes+1))
	if err != nil {
		return nil, fmt.Errorf("the answer of %s broke off: %w", p.URL.Host, err)
	}
	return p.result(response, received)
}

// result converts a response into the result of the execution.
func (p *HTTPHandler) result(response *http.Response, body []byte) (any, error) {
	status := response.StatusCode
	if status >= 200 && status < 300 {
		if int64(len(body)) > p.MaxOutputBytes {
			return nil, outputTooLongError(p.MaxOutputBytes)
		}
		return parseOutput(body), nil
	}
	failure := errors.New(describeWithOutput(p.URL.Host+" answered "+response.Status,
		string(body[:min(len(body), maxQuotedBytes)])))
	switch {
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusTooEarly,
		status == http.StatusTooManyRequests:
		return nil,
			runner.RetryAfter(failure,
				parseRetryAfter(response.Header.Get("Retry-After"), time.Now()))
	default:
		return nil, runner.Permanent(failure)
	}
}

// parseRetryAfter parses a Retry-After header, which holds seconds or a date. It returns at most
// maxRetryAfter, and 0 if the value is absent, invalid or in the past.
func parseRetryAfter(value string, now time.Time) time.Duration {
	var after time.Duration
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		after = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(value); err == nil {
		after = at.Sub(now)
	}
	return min(max(after, 0), maxRetryAfter)
}

// setHeaders sets the headers of a request: those that describe the execution, and those of the
// original request. If RawBody is true, the original headers keep their names, and those that must
// not be forwarded are omitted. Otherwise, all original headers get the prefix Hookstart-Header-.
func (p *HTTPHandler) setHeaders(header http.Header, e runner.Execution) {
	for _, name := range slices.Sorted(maps.Keys(e.Headers)) {
		if p.RawBody && isForwardableHeader(name) {
			header[textproto.CanonicalMIMEHeaderKey(name)] = e.Headers[name]
		} else if !p.RawBody {
			header["Hookstart-Header-"+name] = e.Headers[name]
		}
	}
	contentType := e.Payload.ContentType
	if !p.RawBody {
		contentType = "application/json"
	}
	set := func(name, value string) {
		if value != "" {
			header.Set(name, value)
		}
	}
	set("Content-Type", contentType)
	set("User-Agent", "hookstart")
	set("Hookstart-Query", url.Values(e.Query).Encode())
	set("Traceparent", e.Trace)
	for name, value := range executionHeaders(e) {
		set("Hookstart-"+name, value)
	}
}

// headersNotForwarded lists the headers that describe the sender's connection, and those that a
// target trusts because they are usually set by its own proxy.
var headersNotForwarded = []string{ //nolint:gochecknoglobals // a constant list
	"Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Expect", "Forwarded",
	"Host", "Keep-Alive", "Te",
	"Trailer", "Transfer-Encoding", "Tracestate", "Upgrade", "Via", "X-Real-Ip",
}

// isForwardableHeader reports whether a sender's header may be forwarded under its original name.
// It returns false if the name has a prefix that hookstart, signatures or proxies use, because the
// target may trust such headers.
func isForwardableHeader(name string) bool {
	name = textproto.CanonicalMIMEHeaderKey(name)
	for _, ours := range []string{"Webhook-", "Hookstart-", "X-Forwarded-", "Proxy-"} {
		if strings.HasPrefix(name, ours) {
			return false
		}
	}
	return !slices.Contains(headersNotForwarded, name)
}
