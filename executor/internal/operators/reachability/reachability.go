// Package reachability checks whether the public URL, which operators give to senders, reaches an
// ingress of this installation.
package reachability

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hookstart/hookstart/executor/client/noredirect"
	"github.com/hookstart/hookstart/shared/probe"
	"github.com/hookstart/hookstart/shared/registry/consistency"
)

// State is the outcome of a check: what responds at the public URL.
type State string

// The possible states.
const (
	StateReached     State = "reached"     // an ingress of this installation responds
	StateUnreachable State = "unreachable" // no server responds
	// StateRedirected means that the server redirects. A sender that follows the redirect may lose
	// the body, and many senders do not follow redirects.
	StateRedirected        State = "redirected"
	StateOtherProgram      State = "stranger" // another program responds
	StateOtherInstallation State = "another"  // another installation of hookstart responds
	StateUnknown           State = "unknown"  // the public URL could not be checked
)

const (
	probePath    = "/webhooks/-" // a webhook path; any workflow ID works
	probeTimeout = 5 * time.Second
	// resultTTL is how long a result is reused without a new check.
	resultTTL = 30 * time.Second
	// maxResponseBytes is the maximum number of bytes read from a response body.
	maxResponseBytes = 4 << 10
)

// Result is the result of a check, with the URL that was checked.
type Result struct {
	URL      string // without a trailing slash; "" if unknown
	Loopback bool   // whether the URL is reachable only from its own machine
	// State is the outcome of the check.
	State  State
	Detail string // explanation of the state, for operators
	// CheckedAt is when the check was made, which may be up to resultTTL ago.
	CheckedAt time.Time
}

// IngressLister lists the running ingresses. *consistency.Membership implements it.
type IngressLister interface {
	// IngressSettings returns the settings of the running ingresses.
	IngressSettings() []*consistency.IngressSettings
}

// Checker checks the public URL. It is safe for concurrent use.
type Checker struct {
	configuredURL string
	ingresses     IngressLister
	client        *http.Client

	mu   sync.Mutex // also held during a check, so that concurrent callers share one check
	last Result
}

// New returns a Checker for the executor's public URL. If publicURL is empty, the Checker uses the
// public URL of a running ingress.
func New(publicURL string, ingresses IngressLister) *Checker {
	transport := &http.Transport{
		Proxy:             http.ProxyFromEnvironment,
		DisableKeepAlives: true, // every probe connects anew, as a sender's first request does
		// The responding server is not trusted, so limit the size of its headers.
		MaxResponseHeaderBytes: 16 << 10,
	}
	return &Checker{
		configuredURL: strings.TrimRight(publicURL, "/"), ingresses: ingresses,
		client: noredirect.NewClient(transport, 0), // no redirects: only the public URL is probed
	}
}

// URL returns the base of webhook URLs without a trailing slash, or "" if neither this executor nor
// a running ingress has a public URL.
func (c *Checker) URL() string {
	if c.configuredURL != "" {
		return c.configuredURL
	}
	var urls []string
	for _, ingress := range c.ingresses.IngressSettings() {
		if ingress.PublicURL != "" {
			urls = append(urls, strings.TrimRight(ingress.PublicURL, "/"))
		}
	}
	if len(urls) == 0 {
		return ""
	}
	return slices.Min(urls) // the ingresses are in no particular order
}

// Check checks whether the URL reaches an ingress, and returns the result. It reuses the previous
// result if that is no older than resultTTL and the URL is still the same.
func (c *Checker) Check(ctx context.Context) Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	if base := c.URL(); base != c.last.URL || time.Since(c.last.CheckedAt) > resultTTL {
		// Other callers use the result as well, so the check must continue when the first caller's
		// context ends.
		probeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout)
		defer cancel()
		state, detail := c.probe(probeCtx, base)
		c.last = Result{
			URL:       base,
			Loopback:  IsLoopback(base),
			State:     state,
			Detail:    detail,
			CheckedAt: time.Now(),
		}
	}
	return c.last
}

// probe sends a POST without a token, which starts nothing. It returns the state and a description
// of it. An ingress of this installation identifies itself by a header that it adds to its usual
// response.
func (c *Checker) probe(ctx context.Context, base string) (State, string) {
	if base == "" {
		return StateUnknown, "No public URL is set. " +
			"Start the executor or the ingress with --public-url."
	}
	ingresses := c.ingresses.IngressSettings()
	var keys [][]byte
	for _, ingress := range ingresses {
		if len(ingress.ProbeKey) > 0 {
			keys = append(keys, ingress.ProbeKey)
		}
	}
	switch {
	case len(ingresses) == 0:
		return StateUnknown, "No ingress is alive, so there is nobody to reach."
	case len(keys) == 0:
		return StateUnknown,
			"The running ingresses have an older version that does not support the check."
	}

	challenge := probe.NewChallenge(keys)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, base+probePath, http.NoBody)
	if err != nil {
		return StateUnknown, "The public URL cannot be called: " + err.Error()
	}
	request.Header.Set(probe.Header, challenge.HeaderValue())
	request.Header.Set("User-Agent", "hookstart")
	response, err := c.client.Do(request)
	if invalid, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return StateUnreachable,
			"Somebody answers there, with a certificate that senders do not accept: " +
				invalid.Err.Error() +
				". Most senders know public authorities only; if this one is meant to be your " +
				"own, let the executor's machine trust it."
	}
	if isTLSError(err) {
		return StateUnreachable,
			"Somebody answers there, but not with the TLS that https:// asks for: " +
				textWithoutURL(err) + ". Check the port, and the public URL."
	}
	if err != nil {
		return StateUnreachable,
			"Nobody answers there: " + textWithoutURL(err) +
				". Check the name, the proxy and the firewalls on the way."
	}
	defer func() { _ = response.Body.Close() }()
	if challenge.IsValidResponse(response.Header.Get(probe.Header)) {
		return StateReached, "It leads to an ingress of this installation."
	}
	// A part of the body is enough to classify the response.
	body, _ := io.ReadAll(io.LimitReader(response.Body, maxResponseBytes))
	return classifyUnexpectedResponse(response, body)
}

// isTLSError reports whether an error means that the server does not speak TLS, or rejects the TLS
// connection.
func isTLSError(err error) bool {
	_, alert := errors.AsType[tls.AlertError](err)
	return errors.Is(err, http.ErrSchemeMismatch) || errors.As(err, new(tls.RecordHeaderError)) ||
		alert
}

// classifyUnexpectedResponse describes a response that is not from an ingress of this installation.
func classifyUnexpectedResponse(response *http.Response, body []byte) (State, string) {
	if to := response.Header.Get("Location"); response.StatusCode >= 300 &&
		response.StatusCode < 400 {
		where := "elsewhere"
		if at, err := response.Request.URL.Parse(to); err == nil && at.Host != "" {
			where = at.Scheme + "://" + at.Host
		}
		return StateRedirected,
			fmt.Sprintf("It answers %d and sends callers to %s. Most senders do not follow "+
				"redirects: configure the URL that answers without one.", response.StatusCode,
				where)
	}
	var problem struct {
		Code string `json:"code"`
	}
	if json.Unmarshal(body, &problem) == nil && problem.Code == "token_missing" &&
		response.StatusCode == http.StatusBadRequest {
		return StateOtherInstallation,
			"Another hookstart answers there: an ingress that is not connected to this " +
				"executor's NATS servers."
	}
	return StateOtherProgram,
		fmt.Sprintf("Something else answers there, with status %d. Check that the proxy passes "+
			"/webhooks/ on to the ingress.", response.StatusCode)
}

// textWithoutURL returns the text of err without the URL, which operators see separately. For a
// timeout, the text says how long the Checker waited.
func textWithoutURL(err error) string {
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return fmt.Sprintf("no answer within %s", probeTimeout)
	}
	return noredirect.WithoutURL(err).Error()
}

// IsLoopback reports whether a URL is reachable only from its own machine.
func IsLoopback(base string) bool {
	u, err := url.Parse(base)
	if err != nil {
		return false
	}
	host := u.Hostname()
	ip := net.ParseIP(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") ||
		(ip != nil && (ip.IsLoopback() || ip.IsUnspecified()))
}
