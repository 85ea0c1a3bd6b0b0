package execution

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"unicode/utf8"
)

// BodyKind is the kind of a request body. It determines how Payload.WorkflowInput converts the body
// to JSON.
type BodyKind uint8

// The kinds of bodies. A rejected execution has the kind BodyNone if its body was not read, or was
// declared as JSON but is not valid JSON.
const (
	BodyNone BodyKind = iota
	BodyJSON
	BodyText
	BodyBinary
)

// Payload is the body of a request, and how to interpret it.
type Payload struct {
	ContentType string // the Content-Type as sent, with its parameters
	// Kind determines how WorkflowInput converts Body to JSON.
	Kind BodyKind
	Body []byte // the body as sent
}

// ErrNotJSON means that a body was declared as application/json but is not one JSON text.
var ErrNotJSON = errors.New("the body is not one JSON text")

// NewPayload determines how to interpret a body. Only a body of the media type application/json is
// treated as JSON; if it is invalid, NewPayload returns ErrNotJSON.
func NewPayload(contentType string, body []byte) (Payload, error) {
	p := Payload{ContentType: contentType, Body: body}
	switch {
	case isJSON(contentType):
		if !ValidJSON(body) {
			return Payload{}, ErrNotJSON
		}
		p.Kind = BodyJSON
	case utf8.Valid(body):
		p.Kind = BodyText
	default:
		p.Kind = BodyBinary
	}
	return p, nil
}

// isJSON reports whether the media type is application/json, ignoring case. Parameters, even
// malformed ones, are ignored.
func isJSON(contentType string) bool {
	mediaType, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.Trim(mediaType, " \t"), "application/json")
}

// Form parses the body as application/x-www-form-urlencoded. If a pair cannot be unescaped, Form
// returns an error together with the other pairs. Some senders put their JSON document into the
// field payload of such a form.
func (p Payload) Form() (url.Values, error) { return url.ParseQuery(string(p.Body)) }

// WorkflowInput returns the JSON document that is passed to the workflow:
//
//	JSON    the body itself
//	Text    {"body": "<the text>"}
//	Binary  {"body": "<base64>", "bodyEncoding": "base64"}
//
// It returns nil for BodyNone.
func (p Payload) WorkflowInput() []byte {
	switch p.Kind {
	case BodyJSON:
		return p.Body
	case BodyText:
		return mustMarshal(struct {
			Body string `json:"body"`
		}{string(p.Body)})
	case BodyBinary:
		return mustMarshal(struct {
			Body     string `json:"body"`
			Encoding string `json:"bodyEncoding"`
		}{base64.StdEncoding.EncodeToString(p.Body), "base64"})
	case BodyNone:
		return nil
	default:
		return nil
	}
}

func mustMarshal(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // structs of strings can always be marshaled
	}
	return text
}
