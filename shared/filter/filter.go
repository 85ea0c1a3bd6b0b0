// Package filter decides which requests start an execution. A filter is a JSON object that maps
// places in a request, such as a header or a JSON pointer into the body, to conditions on the
// values there.
//
// The package does no I/O: its input is a request, and its output is a verdict. All errors in a
// filter are found when it is parsed; matching a request never fails.
package filter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/hookstart/hookstart/shared/sender"
)

// Limits on a filter.
const (
	// MaxBytes is the maximum length of a filter in bytes, as compact JSON.
	MaxBytes = 16 << 10
	// MaxConditions is the maximum number of places in a request, such as headers or fields of the
	// body, that a filter may test.
	MaxConditions = 50
	// maxDepth is the maximum nesting depth of conditions.
	maxDepth = 16
)

// Error describes a mistake in a filter. It is for the operator who set the filter.
type Error struct {
	Place  string // the place in the request whose condition is wrong; "" for the whole filter
	Detail string // what is wrong and what to do
}

// Error returns the place, if there is one, and the detail.
func (e *Error) Error() string {
	if e.Place == "" {
		return e.Detail
	}
	return e.Place + ": " + e.Detail
}

// Filter is a compiled filter. It is immutable and safe for concurrent use.
type Filter struct {
	text       string
	conditions []condition
	pointers   *pointerSet // nil means that no condition refers to the body's JSON
}

// condition tests the value at one place in a request, such as a header or a JSON pointer.
type condition struct {
	placeText string // the place as written in the filter
	place     sender.RequestPlace
	// pointerIndex is the index of the place's JSON pointer in Filter.pointers, or -1 if the place
	// is not a JSON pointer.
	pointerIndex int
	test         predicate
}

// Parse compiles a filter, which must be a JSON object. Any error is an *Error.
func Parse(text []byte) (*Filter, error) {
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		return nil, &Error{Detail: "is no JSON: " + err.Error()}
	}
	if compact.Len() > MaxBytes {
		return nil, &Error{
			Detail: fmt.Sprintf("has %d bytes; at most %d are allowed", compact.Len(), MaxBytes),
		}
	}
	members, err := parseObject(compact.Bytes())
	if err != nil {
		return nil, &Error{Detail: err.Error()}
	}
	if len(members) > MaxConditions {
		return nil, &Error{
			Detail: fmt.Sprintf("names %d places; at most %d are allowed", len(members),
				MaxConditions),
		}
	}
	f := &Filter{text: compact.String()}
	var paths [][]string
	for _, m := range members {
		c := condition{placeText: m.name, pointerIndex: -1}
		if c.place, err = sender.ParseRequestPlace(m.name); err != nil {
			return nil, &Error{Place: m.name, Detail: err.Error()}
		}
		if c.test, err = parsePredicate(m.value, 0); err != nil {
			return nil, &Error{Place: m.name, Detail: err.Error()}
		}
		if path := c.place.JSONPointer(); path != nil {
			c.pointerIndex = len(paths)
			paths = append(paths, path)
		}
		f.conditions = append(f.conditions, c)
	}
	if len(paths) > 0 {
		f.pointers = newPointerSet(paths)
	}
	return f, nil
}

// String returns the filter as compact JSON.
func (f *Filter) String() string { return f.text }

// Headers returns the canonical names of the headers that the conditions refer to.
func (f *Filter) Headers() (names []string) {
	for i := range f.conditions {
		if name := f.conditions[i].place.HeaderName(); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// Match reports whether a request meets all conditions of the filter. If it does not, failedPlace
// is the first place whose condition does not hold, as written in the filter.
func (f *Filter) Match(r *sender.Request) (failedPlace string, ok bool) {
	var room [8]value
	var found []value // the values of the pointers, once the document has been read
	for i := range f.conditions {
		c := &f.conditions[i]
		var v value
		switch {
		case c.pointerIndex < 0:
			if text, ok := c.place.Text(r); ok {
				v = value{kind: kindText, text: text}
			}
		default:
			if found == nil {
				found = f.pointers.resolve(room[:0], r.JSONDocument())
			}
			v = found[c.pointerIndex]
		}
		if !c.test.holds(v) {
			return c.placeText, false
		}
	}
	return "", true
}

// member is a name and its value in a JSON object.
type member struct {
	name  string
	value json.RawMessage
}

// parseObject returns the members of a JSON object, in order. Duplicate names are an error.
func parseObject(text []byte) ([]member, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	if token != json.Delim('{') {
		return nil, errors.New(`must be a JSON object, like {"ptr:/action": "opened"}`)
	}
	var members []member
	seen := map[string]bool{}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		m := member{name: fmt.Sprint(token)}
		if err := decoder.Decode(&m.value); err != nil {
			return nil, err
		}
		if seen[m.name] {
			return nil, fmt.Errorf("%q is there twice", m.name)
		}
		seen[m.name] = true
		members = append(members, m)
	}
	return members, nil
}

// predicate is the test of a condition. Exactly one of its fields is set.
type predicate struct {
	anyOf   []literal // the value equals one of them
	not     *predicate
	exists  *bool
	prefix  *string
	compare *comparison
	all     []predicate // several operators, which must all hold
}

// comparison compares a number with a bound, for the operators $gt, $gte, $lt and $lte.
type comparison struct {
	bound                   decimal
	allowsLess, allowsEqual bool // whether the value may be less than the bound, or equal to it
	allowsGreater           bool
}

// literal is a constant in a filter that is compared with the value at a place. kind determines
// which other field is set.
type literal struct {
	kind      kind
	text      string
	number    decimal
	boolValue bool
}

const conditionSyntax = "a condition is a value, a list of values, or an object of $not, " +
	"$exists, " +
	"$prefix, $gt, $gte, $lt and $lte"

func parsePredicate(text json.RawMessage, depth int) (predicate, error) {
	if depth > maxDepth {
		return predicate{}, fmt.Errorf("conditions are nested more than %d deep", maxDepth)
	}
	switch text[0] {
	case '{':
		return parseOperators(text, depth)
	case '[':
		var list []json.RawMessage
		if err := json.Unmarshal(text, &list); err != nil {
			return predicate{}, err
		}
		if len(list) == 0 {
			return predicate{}, errors.New(
				"the list of values is empty, so nothing would ever start",
			)
		}
		t := predicate{anyOf: make([]literal, len(list))}
		for i, element := range list {
			var err error
			if t.anyOf[i], err = parseLiteral(element); err != nil {
				return predicate{}, err
			}
		}
		return t, nil
	default:
		condition, err := parseLiteral(text)
		return predicate{anyOf: []literal{condition}}, err
	}
}

func parseLiteral(text json.RawMessage) (literal, error) {
	switch text[0] {
	case '"':
		l := literal{kind: kindText}
		err := json.Unmarshal(text, &l.text)
		return l, err
	case 't', 'f':
		return literal{kind: kindBool, boolValue: text[0] == 't'}, nil
	case 'n':
		return literal{kind: kindNull}, nil
	case '{', '[':
		return literal{},
			errors.New(
				"a list holds texts, numbers, true, false and null alone; " + conditionSyntax,
			)
	default:
		return literal{kind: kindNumber, number: parseDecimal(string(text))}, nil
	}
}

func parseOperators(text json.RawMessage, depth int) (predicate, error) {
	members, err := parseObject(text)
	if err != nil {
		return predicate{}, err
	}
	if len(members) == 0 {
		return predicate{}, errors.New("the object has no operator; " + conditionSyntax)
	}
	all := make([]predicate, len(members))
	for i, m := range members {
		if all[i], err = parseOperator(m, depth); err != nil {
			return predicate{}, err
		}
	}
	if len(all) == 1 {
		return all[0], nil
	}
	return predicate{all: all}, nil
}

func parseOperator(m member, depth int) (predicate, error) {
	switch m.name {
	case "$not":
		inner, err := parsePredicate(m.value, depth+1)
		return predicate{not: &inner}, err
	case "$exists":
		var exists *bool
		if json.Unmarshal(m.value, &exists) != nil || exists == nil {
			return predicate{}, errors.New("$exists is true or false")
		}
		return predicate{exists: exists}, nil
	case "$prefix":
		var prefix *string
		if json.Unmarshal(m.value, &prefix) != nil || prefix == nil {
			return predicate{}, errors.New("$prefix is a text")
		}
		return predicate{prefix: prefix}, nil
	case "$gt", "$gte", "$lt", "$lte":
		if !isJSONNumber(string(m.value)) {
			return predicate{}, fmt.Errorf("%s is a number", m.name)
		}
		return predicate{compare: &comparison{
			bound:         parseDecimal(string(m.value)),
			allowsLess:    strings.HasPrefix(m.name, "$l"),
			allowsGreater: strings.HasPrefix(m.name, "$g"),
			allowsEqual:   strings.HasSuffix(m.name, "e"),
		}}, nil
	default:
		return predicate{}, fmt.Errorf("there is no operator %q; %s", m.name, conditionSyntax)
	}
}

func (t *predicate) holds(v value) bool {
	switch {
	case t.anyOf != nil:
		for i := range t.anyOf {
			if v.equals(&t.anyOf[i]) {
				return true
			}
		}
		return false
	case t.not != nil:
		return !t.not.holds(v)
	case t.exists != nil:
		return *t.exists == (v.kind != kindAbsent)
	case t.prefix != nil:
		text, ok := v.asText()
		return ok && strings.HasPrefix(text, *t.prefix)
	case t.compare != nil:
		number, ok := v.asNumber()
		if !ok {
			return false
		}
		order := number.compare(t.compare.bound)
		return order < 0 && t.compare.allowsLess || order == 0 && t.compare.allowsEqual ||
			order > 0 && t.compare.allowsGreater
	}
	for i := range t.all {
		if !t.all[i].holds(v) {
			return false
		}
	}
	return true
}
