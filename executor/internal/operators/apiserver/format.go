package apiserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hookstart/hookstart/executor/client/api"
)

// jsonFormat writes inputs, outputs and sample payloads unchanged. encoding/json would compact
// them, and allows at most 10,000 levels of nesting.
var jsonFormat = huma.Format{Marshal: writeJSON, Unmarshal: readJSON}

// readJSON is like json.Unmarshal, except if into is a *any, which huma passes to validate the
// structure of a body. In that case, readJSON accepts any number, because a sample payload is
// stored as sent and may contain numbers beyond float64. It also rejects text that is not UTF-8,
// because encoding/json would change such text.
func readJSON(text []byte, into any) error {
	target, ok := into.(*any)
	if !ok {
		if err := checkSelection(text, into); err != nil {
			return err
		}
		return explainIntegerError(json.Unmarshal(text, into))
	}
	if !utf8.Valid(text) {
		return errors.New("must be JSON in UTF-8")
	}
	var whole json.RawMessage // detects syntax errors, including text after the value
	if err := json.Unmarshal(text, &whole); err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(whole))
	decoder.UseNumber()
	if err := decoder.Decode(target); err != nil {
		return err
	}
	*target = numbersToFloat64(*target)
	return nil
}

// checkSelection returns an error if into is a selection of many objects and one of its members is
// null in text. huma accepts a null for any member that is not required. Here, a null would select
// by nothing, and so everything: the client has probably lost the value.
func checkSelection(text []byte, into any) error {
	switch into.(type) {
	case *api.SelectDeadLetters, *api.ReplayRejected, *api.CancelExecutions:
	default:
		return nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return nil //nolint:nilerr // huma has already reported it
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if string(members[name]) == "null" {
			return fmt.Errorf("%s: must not be null; leave it out if it is not to select", name)
		}
	}
	return nil
}

// explainIntegerError replaces the type error for numbers like 1.0 and 1e2 with an explanation.
// These numbers are integers in JSON Schema, but not for encoding/json. huma has already reported
// all other type errors, so no other type error can occur here.
func explainIntegerError(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("%s: write the %s without a fraction or an exponent", wrong.Field,
			wrong.Value)
	}
	return err
}

// numbersToFloat64 converts the numbers of a document to float64, as huma expects. Numbers that are
// too large become infinite.
func numbersToFloat64(value any) any {
	switch value := value.(type) {
	case json.Number:
		number, _ := value.Float64()
		return number
	case []any:
		for i := range value {
			value[i] = numbersToFloat64(value[i])
		}
	case map[string]any:
		for name := range value {
			value[name] = numbersToFloat64(value[name])
		}
	}
	return value
}

// jsonMember is a member of a JSON object. encodedValue is the member's value as JSON text; an
// empty encodedValue means null.
type jsonMember struct {
	name         string
	encodedValue []byte
}

func writeJSON(w io.Writer, v any) error {
	text, err := encodeJSON(v)
	if err != nil {
		return err
	}
	// An error means that the client has disconnected, so there is nobody to report it to.
	_, _ = w.Write(text)
	return nil
}

// encodeJSON encodes v as JSON. Some members of v are JSON texts already, such as sample payloads.
// These must stay unchanged, but encoding/json would compact them. encodeJSON therefore embeds v in
// a struct that has empty fields with the same names, so that encoding/json omits these members.
// encodeJSON then appends them to the result unchanged.
func encodeJSON(v any) ([]byte, error) {
	switch v := v.(type) {
	case api.Trigger:
		return encodeWithMembers(struct {
			api.Trigger
			SamplePayload *struct{} `json:"samplePayload,omitempty"`
		}{Trigger: v}, jsonMember{"samplePayload", v.SamplePayload})
	case api.ExecutionDetail:
		return encodeWithMembers(struct {
			api.ExecutionDetail
			Input  *struct{} `json:"input,omitempty"`
			Output *struct{} `json:"output,omitempty"`
		}{ExecutionDetail: v}, jsonMember{"input", v.Input}, jsonMember{"output", v.Output})
	default:
		return encodeUnescapedJSON(v)
	}
}

// encodeWithMembers encodes object as a JSON object and appends members to it. object must have at
// least one field.
func encodeWithMembers(object any, members ...jsonMember) ([]byte, error) {
	text, err := encodeUnescapedJSON(object)
	if err != nil {
		return nil, err
	}
	text = text[:len(text)-1] // drop the closing brace; object has a field
	for _, m := range members {
		value := bytes.TrimSpace(m.encodedValue)
		if len(value) == 0 {
			value = []byte("null")
		}
		text = append(text, `,"`+m.name+`":`...)
		text = append(text, value...)
	}
	return append(text, '}'), nil
}

// encodeUnescapedJSON is like json.Marshal, but does not escape HTML.
func encodeUnescapedJSON(v any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), nil
}

func schemaOf[T any](group huma.API) *huma.Schema {
	return group.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[T](), true, "")
}
