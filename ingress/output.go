package ingress

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"golang.org/x/net/http/httpguts"

	"github.com/hookstart/hookstart/shared/sender"
	"github.com/hookstart/hookstart/shared/webhook"
)

// outputResponse is an HTTP response built from an execution's output.
type outputResponse struct {
	status      int
	setsStatus  bool        // the output sets the status
	headers     http.Header // further headers, keyed by canonical name
	contentType []string    // the Content-Type; nil if headers has one, or there is no body
	body        []byte
}

// errInvalidOutput is the error for an output whose http member is invalid.
var errInvalidOutput = errors.New("the output's http is not valid")

// responseFromOutput converts an output to a response. An output {"http": {…}} sets the status, the
// headers and the body. Any other output becomes the body, in the form that the sender expects.
// That form also determines the status of a response without a body, unless the output sets the
// status.
func responseFromOutput(output []byte, form sender.OutputFormat) (r outputResponse, err error) {
	r, err = responseWithDefaultStatus(output, form)
	if err == nil && !r.setsStatus && len(r.body) == 0 {
		r.status = form.EmptyBodyStatus()
	}
	return r, err
}

func responseWithDefaultStatus(output []byte, form sender.OutputFormat) (r outputResponse,
	err error,
) {
	var members map[string]json.RawMessage
	if json.Unmarshal(output, &members) == nil && len(members) == 1 && members["http"] != nil {
		return responseFromHTTPMember(members["http"])
	}
	r.status = http.StatusOK
	if a := form.Response(output); a != nil {
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

// responseFromHTTPMember converts the http member of an output to a response. Unknown fields are an
// error.
func responseFromHTTPMember(text []byte) (r outputResponse, err error) {
	var given struct {
		Status  *int                       `json:"status"`
		Headers map[string]json.RawMessage `json:"headers"`
		Body    json.RawMessage            `json:"body"`
		Cookies bool                       `json:"cookies"`
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if string(bytes.TrimSpace(text)) == "null" {
		return r, fmt.Errorf("%w: it must be an object", errInvalidOutput)
	}
	if err := decoder.Decode(&given); err != nil {
		return r, fmt.Errorf("%w: %w", errInvalidOutput, err)
	}
	r.status, r.setsStatus = http.StatusOK, given.Status != nil
	if r.setsStatus {
		r.status = *given.Status
	}
	if r.status < 200 || r.status > 599 {
		return r, fmt.Errorf("%w: status must be 200 to 599, not %d", errInvalidOutput, r.status)
	}
	if r.headers, err = parseOutputHeaders(given.Headers, given.Cookies); err != nil {
		return r, err
	}
	switch r.status {
	case http.StatusNoContent, http.StatusResetContent, http.StatusNotModified:
		return r, nil // responses with these statuses have no body
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

// ignoredOutputHeaders are the headers that an output cannot set, because they concern the
// connection or the length of the body (RFC 9110), or because the ingress sets them.
var ignoredOutputHeaders = []string{
	"Connection", "Content-Length", "Date", "Keep-Alive", "Proxy-Authenticate",
	"Proxy-Authorization", "Proxy-Connection", "Te",
	"Trailer", "Transfer-Encoding", "Upgrade", "X-Content-Type-Options", webhook.HeaderExecutionID,
}

// parseOutputHeaders returns the headers that an output sets. The value of a header is a string or
// a list of strings. ignoredOutputHeaders are omitted, and so are cookies unless the output enables
// them.
func parseOutputHeaders(given map[string]json.RawMessage, cookies bool) (http.Header, error) {
	headers := http.Header{}
	// Names that differ only in case are the same header. Sorting makes the order of its values
	// deterministic.
	for _, name := range slices.Sorted(maps.Keys(given)) {
		values, ok := parseHeaderValues(given[name])
		if !ok {
			return nil,
				fmt.Errorf("%w: the header %q must be a text or a list of texts", errInvalidOutput,
					name)
		}
		if !httpguts.ValidHeaderFieldName(name) || slices.ContainsFunc(values, func(v string) bool {
			return !httpguts.ValidHeaderFieldValue(v)
		}) {
			return nil, fmt.Errorf("%w: the header %q cannot be sent", errInvalidOutput, name)
		}
		name = http.CanonicalHeaderKey(name)
		if slices.Contains(ignoredOutputHeaders, name) || name == "Set-Cookie" && !cookies {
			continue
		}
		headers[name] = append(headers[name], values...)
	}
	return headers, nil
}

// parseHeaderValues returns the values of a header. ok is false unless the header is a string or a
// list of strings.
func parseHeaderValues(header json.RawMessage) (values []string, ok bool) {
	var text *string // nil means null
	if json.Unmarshal(header, &text) == nil {
		if text == nil {
			return nil, false
		}
		return []string{*text}, true
	}
	var list []*string
	if json.Unmarshal(header, &list) != nil || slices.Contains(list, nil) {
		return nil, false
	}
	for _, text := range list {
		values = append(values, *text)
	}
	return values, true
}

// encodeJSONString encodes text as a JSON string, with quotes.
func encodeJSONString(text string) []byte {
	encoded, err := json.Marshal(text)
	if err != nil {
		panic(err) // strings always marshal
	}
	return encoded
}
