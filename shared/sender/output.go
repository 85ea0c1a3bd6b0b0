package sender

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"strings"
)

// outputFormatSpec is one entry of a preset's list of output formats, from the built-in table. The
// first entry whose conditions hold for the request is used.
type outputFormatSpec struct {
	When map[string]string `json:"when"`
	Form OutputFormat      `json:"form"`
}

type conditionalOutputFormat struct {
	when   []condition
	format OutputFormat
}

// OutputFormat is the format to which an execution's output is converted before it is sent to the
// provider as the response.
type OutputFormat string

const (
	// outputFormTextObject is a JSON object that contains the text: {"text": "…"}. An output that
	// is an object is left unchanged.
	outputFormTextObject OutputFormat = "text"
	// outputFormTwiMLMessage and outputFormTwiMLSay are TwiML that contains the text as a message
	// or as speech. An output that is already TwiML is left unchanged.
	outputFormTwiMLMessage OutputFormat = "twiml-message"
	outputFormTwiMLSay     OutputFormat = "twiml-say"
	// outputFormJSONOrNoContent is the output itself as JSON. If there is no output, the response
	// has no body and the status 204.
	outputFormJSONOrNoContent OutputFormat = "json-or-no-content"
)

func (e *presetEntry) compileOutputFormats() ([]conditionalOutputFormat, error) {
	outputs := make([]conditionalOutputFormat, 0, len(e.Outputs))
	for _, spec := range e.Outputs {
		when, err := compileConditions(spec.When)
		if err != nil {
			return nil, err
		}
		switch spec.Form {
		case outputFormTextObject, outputFormTwiMLMessage, outputFormTwiMLSay,
			outputFormJSONOrNoContent:
		default:
			return nil, fmt.Errorf("there is no form of outputs %q", spec.Form)
		}
		outputs = append(outputs, conditionalOutputFormat{when, spec.Form})
	}
	return outputs, nil
}

// OutputFormat returns the format to which an output must be converted for the response to a
// request, or "" if the provider accepts any JSON text.
func (s *Sender) OutputFormat(r *Request) OutputFormat {
	for i := range s.outputFormats {
		if allHold(s.outputFormats[i].when, r) {
			return s.outputFormats[i].format
		}
	}
	return ""
}

// EmptyBodyStatus returns the status of a response without a body, for an output that does not set
// a status itself.
func (f OutputFormat) EmptyBodyStatus() int {
	if f == outputFormJSONOrNoContent {
		return 204
	}
	return 200
}

// Response returns the response that contains an output. It returns nil if the output itself is the
// response body. output must be one JSON text.
func (f OutputFormat) Response(output []byte) *Response {
	text, isText := outputText(output)
	switch f {
	case outputFormTextObject:
		if strings.HasPrefix(string(bytes.TrimSpace(output)), "{") {
			return nil
		}
		if !isText {
			text = string(output)
		}
		body, err := json.Marshal(map[string]string{"text": text})
		if err != nil {
			panic(err) // strings can always be marshaled
		}
		return &Response{Status: 200, ContentType: "application/json", Body: body}
	case outputFormTwiMLMessage, outputFormTwiMLSay:
		if !isText {
			return &Response{Status: 200} // the output cannot become TwiML
		}
		return &Response{Status: 200, ContentType: "text/xml; charset=utf-8", Body: f.twiml(text)}
	case outputFormJSONOrNoContent: // the output itself is the body
	}
	return nil
}

// outputText returns the text of an output: of a JSON string, or of an object whose only member is
// named text and is a string. ok is false for every other output. "hookstart run" wraps an output
// that is not JSON in such an object.
func outputText(output []byte) (text string, ok bool) {
	if json.Unmarshal(output, &text) == nil && string(bytes.TrimSpace(output)) != "null" {
		return text, true
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(output, &members) != nil || len(members) != 1 {
		return "", false
	}
	return text, members["text"] != nil && json.Unmarshal(members["text"], &text) == nil
}

// twiml returns a text as TwiML. A text that begins with < is assumed to be TwiML already.
func (f OutputFormat) twiml(text string) []byte {
	if strings.HasPrefix(strings.TrimSpace(text), "<") {
		return []byte(strings.TrimSpace(text))
	}
	verb := "Message"
	if f == outputFormTwiMLSay {
		verb = "Say"
	}
	var body bytes.Buffer
	body.WriteString(`<?xml version="1.0" encoding="UTF-8"?><Response><` + verb + `>`)
	_ = xml.EscapeText(&body, []byte(text)) // a buffer never fails
	body.WriteString(`</` + verb + `></Response>`)
	return body.Bytes()
}
