package sender

import (
	"errors"
	"fmt"
	"net/textproto"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/hookstart/hookstart/shared/webhook"
)

// valueSource is a part of a request that may contain a value.
type valueSource struct {
	kind sourceKind
	// name is the canonical name of a header, or the name of a form field, a query parameter or a
	// part of the signature.
	name    string
	pointer []string // the tokens of a JSON pointer
	// builtIn reports whether a JSON pointer is from the built-in table. In such a pointer, the
	// token "*" means every element of an array, and booleans count as values.
	builtIn bool
}

type sourceKind uint8

const (
	sourceHeader sourceKind = iota
	sourceJSONPointer
	sourceFormField
	sourceQueryParam
	sourceSignaturePart // a part of the signature header: signature:t
)

var errInvalidSource = errors.New("a source is header:Name, ptr:/json/pointer or form:field")

// parseSource parses the notation of a source, such as header:Name or ptr:/json/pointer. If builtIn
// is true, text is from the built-in table, which may use more kinds of sources than a setting: see
// also valueSource.builtIn.
func parseSource(text string, builtIn bool) (valueSource, error) {
	kind, rest, _ := strings.Cut(text, ":")
	switch kind {
	case "header":
		if !webhook.IsHeaderName(rest) {
			return valueSource{}, fmt.Errorf("%q is not a valid header name", rest)
		}
		return valueSource{kind: sourceHeader, name: textproto.CanonicalMIMEHeaderKey(rest)}, nil
	case "ptr":
		pointer, err := parsePointer(rest)
		return valueSource{kind: sourceJSONPointer, pointer: pointer, builtIn: builtIn}, err
	case "form":
		if rest == "" {
			return valueSource{}, errors.New("form: needs the name of a field")
		}
		return valueSource{kind: sourceFormField, name: rest}, nil
	}
	switch {
	case builtIn && kind == "query" && rest != "":
		return valueSource{kind: sourceQueryParam, name: rest}, nil
	case builtIn && kind == "signature" && rest != "":
		return valueSource{kind: sourceSignaturePart, name: rest}, nil
	}
	return valueSource{}, errInvalidSource
}

// maxPointerTokens is the maximum number of tokens in a pointer.
const maxPointerTokens = 32

// parsePointer parses a JSON pointer (RFC 6901). The pointer must not refer to the whole document.
func parsePointer(text string) ([]string, error) {
	if !strings.HasPrefix(text, "/") {
		return nil, fmt.Errorf("the JSON pointer %q must begin with a slash", text)
	}
	tokens := strings.Split(text[1:], "/")
	if len(tokens) > maxPointerTokens {
		return nil, fmt.Errorf("the JSON pointer has more than %d parts", maxPointerTokens)
	}
	for i, token := range tokens {
		for at := range len(token) {
			if token[at] == '~' &&
				(at+1 == len(token) || (token[at+1] != '0' && token[at+1] != '1')) {
				return nil,
					fmt.Errorf("the JSON pointer %q has a ~ that is neither ~0 nor ~1", text)
			}
		}
		tokens[i] = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
	}
	return tokens, nil
}

// values returns all non-empty values of a header. For a JSON pointer with a "*", it returns one
// value for each element of the array, or nil if any element lacks the value. For all other
// sources, it returns at most one value.
func (s valueSource) values(r *Request) []string {
	switch s.kind {
	case sourceHeader:
		var values []string
		for _, value := range r.headerValues(s.name) {
			if value != "" {
				values = append(values, value)
			}
		}
		return values
	case sourceJSONPointer:
		values, ok := s.appendPointerValues(nil, r.json(), s.pointer)
		if !ok {
			return nil
		}
		return values
	case sourceFormField, sourceQueryParam, sourceSignaturePart:
	}
	if value := s.value(r); value != "" {
		return []string{value}
	}
	return nil
}

// value returns the first value of a source, or "" if there is none.
func (s valueSource) value(r *Request) string {
	switch s.kind {
	case sourceHeader:
		return r.header(s.name)
	case sourceFormField:
		value, _ := r.formValue(s.name)
		return value
	case sourceQueryParam:
		return r.queryValue(s.name)
	case sourceJSONPointer:
		if values := s.values(r); len(values) > 0 {
			return values[0]
		}
	case sourceSignaturePart: // read by the method from the signature header
	}
	return ""
}

// hasValue reports whether the request has a non-empty value at s. At a JSON pointer, a value of
// any type counts, even "", except that null counts only if allowNull is true.
func (s valueSource) hasValue(r *Request, allowNull bool) bool {
	if s.kind != sourceJSONPointer {
		return s.value(r) != ""
	}
	at := r.json()
	for _, token := range s.pointer {
		at = jsonChild(at, token)
	}
	return at.Exists() && (allowNull || at.Type != gjson.Null)
}

// maxPointerValues is the maximum number of values that a pointer may collect. If there are more,
// the pointer has no value.
const maxPointerValues = 1000

// appendPointerValues appends the strings and numbers that a pointer refers to, and for a built-in
// pointer also the booleans. ok is false if a value is missing or empty, or if there are more than
// maxPointerValues.
func (s valueSource) appendPointerValues(
	values []string, at gjson.Result, pointer []string,
) (all []string, ok bool) {
	if len(pointer) == 0 {
		switch {
		case at.Type == gjson.String && at.Str != "":
			return append(values, at.Str), true
		case at.Type == gjson.Number, at.IsBool() && s.builtIn:
			return append(values, at.Raw), true
		default:
			return values, false
		}
	}
	if pointer[0] != "*" || !s.builtIn {
		return s.appendPointerValues(values, jsonChild(at, pointer[0]), pointer[1:])
	}
	if !at.IsArray() {
		return values, false
	}
	ok = false // an empty array has no value
	at.ForEach(func(_, element gjson.Result) bool {
		values, ok = s.appendPointerValues(values, element, pointer[1:])
		ok = ok && len(values) <= maxPointerValues
		return ok
	})
	return values, ok
}

// jsonChild returns the member of an object, or the element of an array, that a token of a JSON
// pointer selects. If there is none, the result's Exists method returns false.
func jsonChild(parent gjson.Result, token string) gjson.Result {
	var found gjson.Result
	switch {
	case parent.IsObject():
		parent.ForEach(func(name, value gjson.Result) bool {
			if name.Str == token {
				found = value
			}
			return !found.Exists()
		})
	case parent.IsArray():
		index, ok := parseArrayIndex(token)
		if !ok {
			break
		}
		parent.ForEach(func(_, value gjson.Result) bool {
			if index == 0 {
				found = value
			}
			index--
			return index >= 0
		})
	}
	return found
}

// parseArrayIndex parses an RFC 6901 array index: digits without leading zeros.
func parseArrayIndex(token string) (int, bool) {
	if token == "" || len(token) > 7 || (len(token) > 1 && token[0] == '0') {
		return 0, false
	}
	index := 0
	for i := range len(token) {
		if token[i] < '0' || token[i] > '9' {
			return 0, false
		}
		index = index*10 + int(token[i]-'0')
	}
	return index, true
}

// condition requires that a source in a request has a certain value, any value, or no value.
type condition struct {
	source valueSource
	// value is the required value. Two values are special. "*" requires any non-empty text or, at a
	// JSON pointer, any value but null. "" requires that there is no value or an empty text; at a
	// JSON pointer, it requires that there is no value at all, not even null or "".
	value string
}

func compileConditions(when map[string]string) ([]condition, error) {
	conditions := make([]condition, 0, len(when))
	for text, value := range when {
		s, err := parseSource(text, true)
		if err != nil {
			return nil, err
		}
		conditions = append(conditions, condition{s, value})
	}
	return conditions, nil
}

func allHold(conditions []condition, r *Request) bool {
	for _, c := range conditions {
		switch c.value {
		case "":
			if c.source.hasValue(r, true) {
				return false
			}
		case "*":
			if !c.source.hasValue(r, false) {
				return false
			}
		default:
			if c.source.value(r) != c.value {
				return false
			}
		}
	}
	return true
}
