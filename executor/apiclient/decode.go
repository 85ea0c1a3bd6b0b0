package apiclient

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/hookstart/hookstart/executor/api"
)

// Decode is json.Unmarshal for what the API answers. Values that others gave it, as
// inputs, may be nested deeper than encoding/json reads: they are cut out unread.
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

// cutMembers takes members out of a JSON object. Of what is not one object nothing is
// taken: whoever reads the rest finds out.
func cutMembers(object []byte, names ...string) (rest []byte, values map[string]json.RawMessage) {
	values = map[string]json.RawMessage{}
	body, isObject := bytes.CutPrefix(bytes.TrimSpace(object), []byte("{"))
	rest = []byte("{")
	for isObject {
		end := memberEnd(body)
		if end < 0 {
			break // it breaks off
		}
		member := bytes.TrimSpace(body[:end])
		name, value, _ := bytes.Cut(member, []byte(":")) // our names have no colon and no escape
		if key := string(bytes.Trim(bytes.TrimSpace(name), `"`)); slices.Contains(names, key) {
			values[key] = bytes.TrimSpace(value)
		} else if len(member) > 0 {
			if len(rest) > 1 {
				rest = append(rest, ',')
			}
			rest = append(rest, member...)
		}
		if body[end] == '}' {
			return append(append(rest, '}'), body[end+1:]...), values
		}
		body = body[end+1:]
	}
	return object, nil
}

// memberEnd is where the comma or the brace is that ends the first member; -1: nowhere.
func memberEnd(body []byte) int {
	depth, inString := 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			depth++
		case depth > 0 && (c == '}' || c == ']'):
			depth--
		case depth == 0 && (c == ',' || c == '}'):
			return i
		}
	}
	return -1
}
