package sender

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hookstart/hookstart/shared/webhook"
)

// Response is the HTTP response that a provider requires instead of the default one.
type Response struct {
	// Status is the HTTP status.
	Status      int
	ContentType string            // "" means that there is no body
	Body        []byte            // as sent to the provider
	Header      map[string]string // further headers, keyed by canonical name
}

// Handshake is a request that a provider sends to check a URL. It does not start an execution.
type Handshake struct {
	// Response is the response to send if Verdict is OK.
	Response Response
	// Verdict reports whether the request is from the provider, as far as that can be determined.
	// If the verdict is not OK, the request is refused.
	Verdict Verdict
	// CapturedSecret is a secret that the provider sent and that must be stored, or "".
	CapturedSecret string
}

// handshakeSpec is a handshake in the built-in table, presets.json. The body of its response is
// described by Echo, HMAC or JSON. If none of them is set, the response has only a status.
type handshakeSpec struct {
	Title  string            `json:"title"`
	Method string            `json:"method"` // POST by default
	When   map[string]string `json:"when"`
	Signed bool              `json:"signed"` // whether the request must also be verified
	Check  map[string]string `json:"check"`  // each source must equal a secret setting
	Echo   string            `json:"echo"`   // a source, sent back as text
	HMAC   *hmacResponseSpec `json:"hmac"`
	JSON   string            `json:"json"`
	Status int               `json:"status"` // 200 by default
	// Headers maps the names of further headers of the response to their values. A value is one of:
	// a source in the request; "text:" followed by fixed text; "rate:" followed by the source of
	// the rate that the provider asks for.
	Headers map[string]string `json:"headers"`
}

// hmacResponseSpec describes a response whose JSON body has two members: the token that the
// provider has sent, and the HMAC-SHA256 of the token with the secret, in hex.
type hmacResponseSpec struct {
	TokenSource string `json:"token"`
	TokenMember string `json:"plain"`
	HMACMember  string `json:"encrypted"`
}

type handshake struct {
	spec         *handshakeSpec
	httpMethod   string
	when         []condition
	secretChecks []condition
	value        valueSource // the source of the value to echo, or of the token to sign
	needsValue   bool        // whether the response needs this value
	baseResponse Response    // the part of the response that is the same for every request
}

// fixedResponse returns a response with a JSON body, or without a body if text is empty. A status
// of 0 means 200.
func fixedResponse(status int, text string) (Response, error) {
	r := Response{Status: cmp.Or(status, 200)}
	if text == "" {
		return r, nil
	}
	if !json.Valid([]byte(text)) {
		return r, fmt.Errorf("the response %s is no JSON", text)
	}
	r.ContentType, r.Body = "application/json", []byte(text)
	return r, nil
}

func (e *presetEntry) compileHandshakes(settings map[string]string) ([]handshake, error) {
	all := make([]handshake, 0, len(e.Handshakes))
	for i := range e.Handshakes {
		spec := &e.Handshakes[i]
		h := handshake{spec: spec, httpMethod: cmp.Or(spec.Method, deliveryHTTPMethod)}
		var err error
		if h.when, err = compileConditions(spec.When); err != nil {
			return nil, err
		}
		if len(h.when) == 0 || spec.Title == "" {
			return nil, errors.New("a handshake needs a title and what it is recognised by")
		}
		for from, setting := range spec.Check {
			s, err := parseSource(from, true)
			if err != nil {
				return nil, err
			}
			h.secretChecks = append(h.secretChecks, condition{s, settings[setting]})
		}
		from := spec.Echo
		if spec.HMAC != nil {
			from = spec.HMAC.TokenSource
		}
		if from != "" {
			if h.value, err = parseSource(from, true); err != nil {
				return nil, err
			}
			h.needsValue = true
		}
		if h.baseResponse, err = fixedResponse(spec.Status, spec.JSON); err != nil {
			return nil, err
		}
		all = append(all, h)
	}
	return all, nil
}

// maxEchoBytes is the maximum length in bytes of a value that is echoed.
const maxEchoBytes = 4 << 10

// HandshakeNeedsBody reports whether the body is needed to recognize a POST as a handshake.
func (s *Sender) HandshakeNeedsBody() bool {
	return slices.ContainsFunc(s.handshakes, func(h handshake) bool {
		return h.httpMethod == deliveryHTTPMethod && anyInBody(h.when)
	}) || s.WaitsForSecret()
}

func anyInBody(conditions []condition) bool {
	return slices.ContainsFunc(conditions, func(c condition) bool {
		return c.source.kind == sourceJSONPointer || c.source.kind == sourceFormField
	})
}

// Handshake recognizes r as one of the sender's handshakes, and returns it with the response to
// send. It returns nil if r is not a handshake, if the value to echo is missing or too long, or if
// the sender is waiting for its secret and r contains no valid one.
func (s *Sender) Handshake(r *Request, now time.Time) *Handshake {
	for i := range s.handshakes {
		h := &s.handshakes[i]
		if h.httpMethod != r.Method || !allHold(h.when, r) {
			continue
		}
		value := ""
		if h.needsValue {
			if value = h.value.value(r); value == "" || len(value) > maxEchoBytes {
				continue
			}
		}
		return s.respondToHandshake(h, value, r, now)
	}
	return nil
}

// nonPOSTHandshakes returns, from all presets, the handshakes that use an HTTP method other than
// POST.
var nonPOSTHandshakes = sync.OnceValue(func() (all []handshake) {
	for _, e := range presetTable() {
		handshakes, err := e.compileHandshakes(nil)
		if err != nil {
			// parsePresetTable has compiled them.
			panic(fmt.Sprintf("sender: preset %s: %v", e.ID, err))
		}
		for _, h := range handshakes {
			if h.httpMethod != deliveryHTTPMethod {
				all = append(all, h)
			}
		}
	}
	return all
})

// IsNonPOSTHandshake reports whether the request is a handshake that uses an HTTP method other than
// POST. It considers the handshakes of all presets, and does not check the values that depend on a
// sender's settings.
func IsNonPOSTHandshake(r *Request) bool {
	return slices.ContainsFunc(nonPOSTHandshakes(), func(h handshake) bool {
		return h.httpMethod == r.Method && allHold(h.when, r)
	})
}

func (s *Sender) respondToHandshake(
	h *handshake, value string, r *Request, now time.Time,
) *Handshake {
	done := &Handshake{}
	if s.WaitsForSecret() {
		from, err := parseSource(s.entry.Secret.CaptureSource, true)
		if err == nil {
			done.CapturedSecret = from.value(r)
		}
		if checkSecret(done.CapturedSecret) != nil {
			return nil
		}
	} else if h.spec.Signed {
		done.Verdict = s.Verify(r, now)
	}
	for _, c := range h.secretChecks {
		if c.value == "" || constantTimeEqual(c.source.value(r), c.value) != 1 {
			done.Verdict = Verdict{
				Code:   webhook.CodeSignatureInvalid,
				Reason: c.source.String() + " is not the one that was set",
			}
		}
	}
	if done.Verdict.OK() {
		done.Response = s.buildHandshakeResponse(h, value, r, done.Verdict.SecretID)
	}
	return done
}

// plainTextType is the media type of an echoed value. It keeps a browser from executing the value.
const plainTextType = "text/plain"

func (s *Sender) buildHandshakeResponse(
	h *handshake, value string, r *Request, secretID string,
) Response {
	response := h.baseResponse
	response.Header = map[string]string{}
	switch {
	case h.spec.HMAC != nil:
		response.ContentType = "application/json"
		response.Body = s.hmacBody(h.spec.HMAC, value, secretID)
	case h.needsValue:
		response.ContentType, response.Body = plainTextType, []byte(value)
	}
	for name, from := range h.spec.Headers {
		if value := responseHeaderValue(from, r); value != "" {
			response.Header[canonicalHeaderNames([]string{name})[0]] = value
		}
	}
	return response
}

// responseHeaderValue returns the value of a response header, or "" if the header must be omitted.
// from describes the value in the notation of handshakeSpec.Headers.
func responseHeaderValue(from string, r *Request) string {
	kind, rest, _ := strings.Cut(from, ":")
	switch kind {
	case "text":
		return rest
	case "rate":
		from = rest
	}
	src, err := parseSource(from, true)
	if err != nil {
		return ""
	}
	value := src.value(r)
	if kind == "rate" {
		return permittedRate(value, r.RateLimitPerMinute)
	}
	if len(value) > maxEchoBytes {
		return ""
	}
	return value
}

// permittedRate returns how many requests per minute a provider may send: the rate that it asks for
// if that is a positive integer of at most limit, and otherwise limit. A limit of 0 allows every
// rate; permittedRate then returns "*" if asked is not a positive integer.
func permittedRate(asked string, limit int) string {
	rate, err := strconv.Atoi(asked)
	switch {
	case err == nil && rate > 0 && asked == strconv.Itoa(rate) && (limit == 0 || rate <= limit):
		return asked
	case limit == 0:
		return "*"
	default:
		return strconv.Itoa(limit)
	}
}

// hmacBody returns the JSON body of the response that spec describes. It contains token and the
// HMAC of token. secretID is the ID of the secret that verified the handshake. The HMAC is computed
// with that secret.
func (s *Sender) hmacBody(spec *hmacResponseSpec, token, secretID string) []byte {
	var secret []byte
	for i := range s.keys {
		if s.keys[i].id == secretID {
			secret = s.keys[i].bytes
		}
	}
	mac := hmac.New(sha256.New, secret)
	_, _ = mac.Write([]byte(token)) // a hash never fails
	text, err := json.Marshal(map[string]string{
		spec.TokenMember: token,
		spec.HMACMember:  hex.EncodeToString(mac.Sum(nil)),
	})
	if err != nil {
		panic(err) // strings can always be marshaled
	}
	return text
}

// responseSpec is one of a preset's responses to a delivery, from the built-in table. The first one
// whose conditions hold for the request is used.
type responseSpec struct {
	When   map[string]string `json:"when"`
	Status int               `json:"status"` // 200 by default
	JSON   string            `json:"json"`   // "" means that there is no body
}

type conditionalResponse struct {
	when     []condition
	response Response
}

func (e *presetEntry) compileResponses() ([]conditionalResponse, error) {
	responses := make([]conditionalResponse, 0, len(e.Responses))
	for _, spec := range e.Responses {
		when, err := compileConditions(spec.When)
		if err != nil {
			return nil, err
		}
		r, err := fixedResponse(spec.Status, spec.JSON)
		if err != nil {
			return nil, err
		}
		responses = append(responses, conditionalResponse{when, r})
	}
	return responses, nil
}

// Response returns the response to a delivery that has been stored, or nil for the default one.
func (s *Sender) Response(r *Request) *Response {
	for i := range s.responses {
		if allHold(s.responses[i].when, r) {
			return &s.responses[i].response
		}
	}
	return nil
}
