// Package testsend sends a request to the webhook endpoint as a sender would, to test a trigger
// node.
package testsend

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/hookstart/hookstart/executor/client/noredirect"
	"github.com/hookstart/hookstart/shared/ops"
	"github.com/hookstart/hookstart/shared/webhook"
)

// Timeout is the maximum duration of a request. It exceeds the ingress's timeouts, so that the
// result is the ingress's response and not an error of this client.
const Timeout = 30 * time.Second

// maxResponseBytes is the maximum number of bytes read from a response body.
const maxResponseBytes = 64 << 10

// Request is a POST request in the form that a sender sends.
type Request struct {
	URL    string              // contains the token
	Header map[string][]string // keyed by canonical header name
	// Body is sent unchanged.
	Body []byte
}

// Response is the endpoint's response. If ExecutionID and Code are both empty, either the request
// was a handshake, or it did not match the filter, or another server responded.
type Response struct {
	// Status is the HTTP status of the response.
	Status      int
	ExecutionID string // the ID in the response header; "" if there is none
	// Deduplicated means that an earlier request with the same delivery ID started the execution.
	Deduplicated bool
	Filtered     bool   // the request did not match the node's filter
	Code, Detail string // code and description of a refusal; "" if not refused
	Outcome      string // webhook.OutcomeUnknown if the request may have been stored, or ""
	RetryAfter   int64  // seconds after which a retry can succeed; 0 means not stated
}

// Client sends requests. It is safe for concurrent use.
type Client struct {
	httpClient *http.Client
}

// New returns a Client. Its requests take the same route as a sender's: over the network and
// through the environment's proxy, without following redirects.
func New() *Client {
	return &Client{noredirect.NewClient(&http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: 16 << 10,
	}, Timeout)}
}

// Post sends a request once. If there is no response, it returns an error that does not contain the
// URL.
func (c *Client) Post(ctx context.Context, r Request) (Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL, bytes.NewReader(r.Body))
	if err != nil {
		return Response{}, withoutURL(err)
	}
	request.Header = r.Header
	if request.Header.Get("User-Agent") == "" {
		request.Header.Set("User-Agent", "hookstart/"+ops.Version)
	}
	response, err := c.httpClient.Do(request)
	if err != nil {
		return Response{}, withoutURL(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxResponseBytes))
	if err != nil {
		return Response{}, withoutURL(err)
	}
	return parseResponse(response, text), nil
}

func parseResponse(response *http.Response, text []byte) Response {
	a := Response{
		Status:      response.StatusCode,
		ExecutionID: response.Header.Get(webhook.HeaderExecutionID),
	}
	var body struct {
		Deduplicated bool   `json:"deduplicated"`
		Filtered     bool   `json:"filtered"`
		Code         string `json:"code"`
		Detail       string `json:"detail"`
		Outcome      string `json:"outcome"`
		RetryAfter   int64  `json:"retryAfter"`
	}
	if json.Unmarshal(text, &body) != nil {
		return a
	}
	if a.Status/100 == 2 {
		a.Deduplicated, a.Filtered = body.Deduplicated, body.Filtered
	} else {
		a.Code, a.Detail, a.Outcome = body.Code, body.Detail, body.Outcome
		a.RetryAfter = body.RetryAfter
	}
	return a
}

// withoutURL removes the URL, which contains the token, from err. A timeout becomes "no answer
// within 30s".
func withoutURL(err error) error {
	if outer, ok := errors.AsType[*url.Error](err); ok && outer.Timeout() {
		return fmt.Errorf("no answer within %s", Timeout)
	}
	return noredirect.WithoutURL(err)
}
