package ingress

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"golang.org/x/net/http/httpguts"

	"github.com/hookstart/hookstart/shared/sender"
	"github.com/hookstart/hookstart/shared/webhook"
)

// response is an answer that the output of an execution gives.
type response struct {
	status      int
	custom      bool        // the output has set the status
	headers     http.Header // further headers, by canonical names
	contentType []string    // nil if headers has it, or there is no body
	body        []byte
}

// errOutput means that an output that sets the answer's status and headers is not valid.
var errOutput = errors.New("the output's http is not valid")

// readOutput returns the answer that an output gives. The output {"http": {…}} sets status, headers
// and body; every other one is the body itself, in the form that the sender takes.
func readOutput(output []byte, form sender.OutputForm) (r response, err error) {
	var members map[string]json.RawMessage
	if json.Unmarshal(output, &members) == nil && len(members) == 1 && members["http"] != nil {
		return readHTTP(members["http"])
	}
	r.status = http.StatusOK
	if a := form.Answer(output); a != nil {
		r.status, r.body = a.Status, a.Body
		if a.ContentType != "" {
			r.contentType = []string{a.ContentType}
		}
		return r, nil
	}
	if len(output) > 0 {
		r.body, r.contentType = output, contentTypeJSON
	}
	return r, nil
}

// readHTTP reads the member http of an output.
func readHTTP(text []byte) (r response, err error) {
	var given struct {
		Status  *int                       `json:"status"`
		Headers map[string]json.RawMessage `json:"headers"`
		Body    json.RawMessage            `json:"body"`
		Cookies bool                       `json:"cookies"`
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if string(bytes.TrimSpace(text)) == "null" {
		return r, fmt.Errorf("%w: it must be an object", errOutput)
	}
	if err := decoder.Decode(&given); err != nil {
		return r, fmt.Errorf("%w: %w", errOutput, err)
	}
	r.status, r.custom = http.StatusOK, given.Status != nil
	if r.custom {
		r.status = *given.Status
	}
	if r.status < 200 || r.status > 599 {
		return r, fmt.Errorf("%w: status must be 200 to 599, not %d", errOutput, r.status)
	}
	if r.headers, err = readHeaders(given.Headers, given.Cookies); err != nil {
		return r, err
	}
	if r.status == http.StatusNoContent || r.status == http.StatusNotModified {
		return r, nil // answers with these statuses have no body
	}
	var textBody string
	switch {
	case len(given.Body) == 0 || string(given.Body) == "null":
		return r, nil
	case json.Unmarshal(given.Body, &textBody) == nil:
		r.body, r.contentType = []byte(textBody), contentTypeText
	default:
		r.body, r.contentType = given.Body, contentTypeJSON
	}
	if r.headers["Content-Type"] != nil {
		r.contentType = nil
	}
	return r, nil
}

var contentTypeText = []string{"text/plain; charset=utf-8"}

// unsentHeaders are the headers that an output does not set. They are about the connection or the
// length of the body (RFC 9110), or are set by the ingress.
var unsentHeaders = []string{
	"Connection", "Content-Length", "Date", "Keep-Alive", "Proxy-Authenticate",
	"Proxy-Authorization", "Proxy-Connection", "Te",
	"Trailer", "Transfer-Encoding", "Upgrade", "X-Content-Type-Options", webhook.HeaderExecutionID,
}

// readHeaders returns the headers that an output sets: texts, or lists of texts. It leaves out
// those that an output does not set, and cookies unless they are wanted.
func readHeaders(given map[string]json.RawMessage, cookies bool) (http.Header, error) {
	headers := http.Header{}
	for name, value := range given {
		var text string
		var values []string
		if json.Unmarshal(value, &text) == nil {
			values = []string{text}
		} else if json.Unmarshal(value, &values) != nil {
			return nil,
				fmt.Errorf("%w: the header %q must be a text or a list of texts", errOutput, name)
		}
		if !httpguts.ValidHeaderFieldName(name) || slices.ContainsFunc(values, func(v string) bool {
			return !httpguts.ValidHeaderFieldValue(v)
		}) {
			return nil, fmt.Errorf("%w: the header %q cannot be sent", errOutput, name)
		}
		name = http.CanonicalHeaderKey(name)
		if slices.Contains(unsentHeaders, name) || name == "Set-Cookie" && !cookies {
			continue
		}
		headers[name] = append(headers[name], values...)
	}
	return headers, nil
}

// jsonText returns a text as JSON.
func jsonText(text string) []byte {
	encoded, err := json.Marshal(text)
	if err != nil {
		panic(err) // texts always marshal
	}
	return encoded
}
