// Package testsend posts a request to the webhook endpoint as a sender would, to test a trigger
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

	"github.com/hookstart/hookstart/shared/ops"
	"github.com/hookstart/hookstart/shared/webhook"
)

// Timeout exceeds an ingress's own timeouts, so that the ingress's answer is seen and not this
// client's error.
const Timeout = 30 * time.Second

// maxAnswer is the number of bytes of an answer that are read.
const maxAnswer = 64 << 10

// Request is a POST as a sender sends it.
type Request struct {
	URL    string              // holds the token
	Header map[string][]string // the headers, by canonical names
	// Body is sent as it is.
	Body []byte
}

// Answer is the endpoint's answer. If it has neither an ExecutionID nor a Code, it answered a
// handshake or a request that did not meet the filter, or another server answered.
type Answer struct {
	// Status is the HTTP status of the answer.
	Status      int
	ExecutionID string // the ID in the answer's header; "" means that there is none
	// Deduplicated means that an earlier request with the delivery ID started the execution.
	Deduplicated bool
	Filtered     bool   // the request does not meet the node's filter
	Code, Detail string // the refusal; "" means that the request was not refused
	RetryAfter   int64  // time in seconds after which a retry can succeed; 0 means not stated
}

// Client posts requests. It is safe for concurrent use.
type Client struct {
	http http.Client
}

// New returns a Client. Its requests take the same way as a sender's: over the network and the
// proxy of the environment, without following redirects.
func New() *Client {
	return &Client{http.Client{
		Timeout: Timeout,
		Transport: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			DisableKeepAlives:      true,
			MaxResponseHeaderBytes: 16 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}}
}

// Post sends a request once. It returns an error, without the URL, if there was no answer.
func (c *Client) Post(ctx context.Context, r Request) (Answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL, bytes.NewReader(r.Body))
	if err != nil {
		return Answer{}, cause(err)
	}
	request.Header = r.Header
	if request.Header.Get("User-Agent") == "" {
		request.Header.Set("User-Agent", "hookstart/"+ops.Version)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return Answer{}, cause(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return Answer{}, cause(err)
	}
	return read(response, text), nil
}

func read(response *http.Response, text []byte) Answer {
	a := Answer{
		Status:      response.StatusCode,
		ExecutionID: response.Header.Get(webhook.HeaderExecutionID),
	}
	var body struct {
		Deduplicated bool   `json:"deduplicated"`
		Filtered     bool   `json:"filtered"`
		Code         string `json:"code"`
		Detail       string `json:"detail"`
		RetryAfter   int64  `json:"retryAfter"`
	}
	if json.Unmarshal(text, &body) != nil {
		return a
	}
	if a.Status/100 == 2 {
		a.Deduplicated, a.Filtered = body.Deduplicated, body.Filtered
	} else {
		a.Code, a.Detail, a.RetryAfter = body.Code, body.Detail, body.RetryAfter
	}
	return a
}

// cause returns an error without the URL, which contains the token.
func cause(err error) error {
	outer, ok := errors.AsType[*url.Error](err)
	switch {
	case !ok:
		return err
	case outer.Timeout():
		return fmt.Errorf("no answer within %s", Timeout)
	default:
		return outer.Err
	}
}
