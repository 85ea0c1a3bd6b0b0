package execution

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"unicode/utf8"
)

// BodyKind says how the input is made from the body.
type BodyKind uint8

// The kinds of a body. NoBody is that of a rejected execution whose body was not read, or is declared as JSON and is none.
const (
	NoBody BodyKind = iota
	JSON
	Text
	Binary
)

// Payload is a request's body and what it means.
type Payload struct {
	ContentType string // as sent
	Kind        BodyKind
	Body        []byte // as sent
}

// ErrNotJSON means that a body that was declared application/json is not one JSON text.
var ErrNotJSON = errors.New("the body is not one JSON text")

// NewPayload decides what a body means. Only one of the media type application/json is read as JSON, which can fail with ErrNotJSON.
func NewPayload(contentType string, body []byte) (Payload, error) {
	p := Payload{ContentType: contentType, Body: body}
	switch {
	case isJSON(contentType):
		if !ValidJSON(body) {
			return Payload{}, ErrNotJSON
		}
		p.Kind = JSON
	case utf8.Valid(body):
		p.Kind = Text
	default:
		p.Kind = Binary
	}
	return p, nil
}

// isJSON says whether the media type is application/json, in any case. Parameters, even malformed ones, change nothing.
func isJSON(contentType string) bool {
	mediaType, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.Trim(mediaType, " \t"), "application/json")
}

// Form reads a body of the type application/x-www-form-urlencoded: some senders put JSON into its field
// payload. Its error says that a pair cannot be unescaped; the others are there all the same.
func (p Payload) Form() (url.Values, error) { return url.ParseQuery(string(p.Body)) }

// Input is the JSON document that the workflow gets:
//
//	JSON    the body itself
//	Text    {"body": "<the text>"}
//	Binary  {"body": "<base64>", "bodyEncoding": "base64"}
//
// It is nil for NoBody.
func (p Payload) Input() []byte {
	switch p.Kind {
	case JSON:
		return p.Body
	case Text:
		return mustMarshal(struct {
			Body string `json:"body"`
		}{string(p.Body)})
	case Binary:
		return mustMarshal(struct {
			Body     string `json:"body"`
			Encoding string `json:"bodyEncoding"`
		}{base64.StdEncoding.EncodeToString(p.Body), "base64"})
	case NoBody:
		return nil
	default:
		return nil
	}
}

func mustMarshal(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // structs of strings always marshal
	}
	return text
}
