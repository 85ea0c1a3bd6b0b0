package apiclient

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/hookstart/hookstart/executor/client/api"
)

// Decode unmarshals a response of the API into result. Inputs, outputs and sample payloads may be
// nested too deeply for json.Unmarshal, so Decode stores them as unparsed JSON.
func Decode(text []byte, result any) error {
	switch result := result.(type) {
	case *api.ExecutionDetail:
		rest, values := cutMembers(text, "input", "output")
		err := json.Unmarshal(rest, result)
		result.Input, result.Output = values["input"], values["output"]
		return err
	case *api.Trigger:
		rest, values := cutMembers(text, "samplePayload")
		err := json.Unmarshal(rest, result)
		result.SamplePayload = values["samplePayload"]
		return err
	default:
		return json.Unmarshal(text, result)
	}
}

// cutMembers splits a JSON object into the values of the named members, and rest, which is the
// object without them. If object is not a JSON object, rest is object itself; json.Unmarshal then
// reports the error.
func cutMembers(object []byte, names ...string) (rest []byte, values map[string]json.RawMessage) {
	tokens := json.NewDecoder(bytes.NewReader(object))
	tokens.UseNumber()
	if begin, err := tokens.Token(); err != nil || begin != json.Delim('{') {
		return object, nil
	}
	rest, values = []byte("{"), map[string]json.RawMessage{}
	for tokens.More() {
		from := tokens.InputOffset()
		token, err := tokens.Token()
		colon := tokens.InputOffset()
		if err != nil || skipValue(tokens) != nil {
			return object, nil
		}
		name, _ := token.(string) // a member's name is always a string
		end := tokens.InputOffset()
		if slices.Contains(names, name) {
			values[name] = bytes.TrimLeft(object[colon:end], ": \t\r\n")
			continue
		}
		if len(rest) > 1 {
			rest = append(rest, ',')
		}
		rest = append(rest, bytes.TrimLeft(object[from:end], ", \t\r\n")...)
	}
	if _, err := tokens.Token(); err != nil {
		return object, nil
	}
	return append(append(rest, '}'), object[tokens.InputOffset():]...), values
}

// skipValue reads past the next value, even if it is deeply nested.
func skipValue(tokens *json.Decoder) error {
	for depth := 0; ; {
		token, err := tokens.Token()
		if err != nil {
			return err
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}
