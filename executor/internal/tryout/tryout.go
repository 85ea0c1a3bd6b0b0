// Package tryout posts to the webhook endpoint what a sender would post, to try a trigger node out.
package tryout

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

// Timeout is longer than an ingress takes to answer what it can read.
const Timeout = 30 * time.Second

// maxAnswer is how much of an answer is read.
const maxAnswer = 64 << 10

// Request is a POST as a sender sends it.
type Request struct {
	URL    string              // holds the token
	Header map[string][]string // by canonical names
	Body   []byte
}

// Answer is what the endpoint answered. Without an ExecutionID and a Code it was to a handshake, or it was not the
// endpoint that answered.
type Answer struct {
	Status       int
	ExecutionID  string // of the answer's header, which is there whatever the sender gets as a body
	Deduplicated bool
	Code, Detail string // of a refusal
	RetryAfter   int64  // seconds
}

// Client posts. It is safe for concurrent use.
type Client struct {
	http http.Client
}

// New makes a Client. Each request takes the way that a sender's takes: over the network, by the proxy of the
// environment, and to nobody but the URL.
func New() *Client {
	return &Client{http.Client{
		Timeout:       Timeout,
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, MaxResponseHeaderBytes: 16 << 10},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Post sends a request once. Its error is why there is no answer, without the URL.
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
	a := Answer{Status: response.StatusCode, ExecutionID: response.Header.Get(webhook.HeaderExecutionID)}
	var body struct {
		Deduplicated bool   `json:"deduplicated"`
		Code         string `json:"code"`
		Detail       string `json:"detail"`
		RetryAfter   int64  `json:"retryAfter"`
	}
	if json.Unmarshal(text, &body) != nil {
		return a
	}
	if a.Status/100 == 2 {
		a.Deduplicated = body.Deduplicated
	} else {
		a.Code, a.Detail, a.RetryAfter = body.Code, body.Detail, body.RetryAfter
	}
	return a
}

// cause is a failure without the URL: it has the token in it.
func cause(err error) error {
	outer, is := errors.AsType[*url.Error](err)
	switch {
	case !is:
		return err
	case outer.Timeout():
		return fmt.Errorf("no answer within %s", Timeout)
	default:
		return outer.Err
	}
}
