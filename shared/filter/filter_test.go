package filter_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/hookstart/hookstart/shared/filter"
	"github.com/hookstart/hookstart/shared/sender"
)

func parse(t testing.TB, text string) *filter.Filter {
	t.Helper()
	f, err := filter.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return f
}

func jsonRequest(body string) *sender.Request {
	return &sender.Request{
		Method: "POST",
		Header: map[string][]string{"Content-Type": {"application/json"}},
		Body:   []byte(body),
	}
}

func formRequest(body string) *sender.Request {
	return &sender.Request{
		Method: "POST",
		Header: map[string][]string{"Content-Type": {"application/x-www-form-urlencoded"}},
		Body:   []byte(body),
	}
}

func TestMatch(t *testing.T) {
	const body = `{"action":"opened","n":5,"big":12345678901234567890,"x":null,"t":true,"s":"5","list":["a",{"b":1}],"e\u006dpty":"","a":{"b":{"c":"deep"}},"a":{"d":1},"half":0.50}`
	for text, want := range map[string]bool{
		`{}`:                                                 true,
		`{"ptr:/action":"opened"}`:                           true,
		`{"ptr:/action":"Opened"}`:                           false,
		`{"ptr:/action":["closed","opened"]}`:                true,
		`{"ptr:/action":["closed"]}`:                         false,
		`{"ptr:/action":{"$not":"opened"}}`:                  false,
		`{"ptr:/action":{"$not":["closed","x"]}}`:            true,
		`{"ptr:/action":{"$prefix":"open"}}`:                 true,
		`{"ptr:/action":{"$prefix":"open","$not":"opened"}}`: false,
		`{"ptr:/n":5}`:                                       true,
		`{"ptr:/n":5.0}`:                                     true,
		`{"ptr:/n":50e-1}`:                                   true,
		`{"ptr:/n":"5"}`:                                     false,
		`{"ptr:/s":5}`:                                       false,
		`{"ptr:/n":{"$gt":4,"$lt":6}}`:                       true,
		`{"ptr:/n":{"$gt":5}}`:                               false,
		`{"ptr:/n":{"$gte":5,"$lte":5}}`:                     true,
		`{"ptr:/s":{"$gt":1}}`:                               false,
		`{"ptr:/big":12345678901234567890}`:                  true,
		`{"ptr:/big":12345678901234567891}`:                  false,
		`{"ptr:/big":{"$lt":12345678901234567891}}`:          true,
		`{"ptr:/half":0.5}`:                                  true,
		`{"ptr:/half":{"$gt":-1e400}}`:                       true,
		`{"ptr:/x":null}`:                                    true,
		`{"ptr:/x":{"$exists":true}}`:                        true,
		`{"ptr:/x":{"$exists":false}}`:                       false,
		`{"ptr:/t":true}`:                                    true,
		`{"ptr:/t":false}`:                                   false,
		`{"ptr:/t":"true"}`:                                  false,
		`{"ptr:/list/0":"a"}`:                                true,
		`{"ptr:/list/1/b":1}`:                                true,
		`{"ptr:/list/01":"a"}`:                               false,
		`{"ptr:/list":{"$exists":true}}`:                     true,
		`{"ptr:/list":"a"}`:                                  false,
		`{"ptr:/empty":""}`:                                  true,
		`{"ptr:/a/b/c":"deep"}`:                              true,
		// If two members have the same name, the first one is used.
		`{"ptr:/a/d":1}`:                        false,
		`{"ptr:/no":null}`:                      false,
		`{"ptr:/no":{"$not":"x"}}`:              true,
		`{"ptr:/no":{"$exists":false}}`:         true,
		`{"ptr:/no":{"$not":{"$exists":true}}}`: true,
		`{"ptr:/no":{"$gt":1}}`:                 false,
		`{"ptr:/action":"opened","ptr:/n":6}`:   false,
		`{"ptr:/a":{"$exists":true},"ptr:/a/b":{"$exists":true},"ptr:/a/b/c":"deep"}`: true,
		`{"header:x-event":"push","query:q":"a b","query:n":7}`:                       true,
		`{"header:X-Event":"second"}`:                                                 false,
		`{"header:X-Empty":""}`:                                                       true,
		`{"header:X-None":{"$exists":false}}`:                                         true,
		`{"query:n":{"$gte":7}}`:                                                      true,
		`{"query:n":"7"}`:                                                             true,
		`{"query:flag":""}`:                                                           true,
		`{"form:f":{"$exists":false}}`:                                                true,
	} {
		r := jsonRequest(body)
		r.Header["X-Event"], r.Header["X-Empty"] = []string{"push", "second"}, []string{""}
		r.Query = "q=a+b&n=7&n=8&flag"
		place, ok := parse(t, text).Match(r)
		if ok != want || (place == "") != ok {
			t.Errorf("%s: %t, place %q", text, ok, place)
		}
	}
	form := &sender.Request{
		Header: map[string][]string{"Content-Type": {"application/x-www-form-urlencoded"}},
		Body:   []byte("f=%C3%BC&payload=%7B%22a%22%3A1%7D"),
	}
	if _, ok := parse(t, `{"form:f":"ü","ptr:/a":1}`).Match(form); !ok {
		t.Error("a form")
	}
	if place, ok := parse(t,
		`{"header:Content-Type":"text/plain","ptr:/a":{"$exists":true},"ptr:/b":{"$not":1}}`).Match(&sender.Request{Header: map[string][]string{"Content-Type": {"text/plain"}}, Body: []byte(`{"a"`)}); ok || place != "ptr:/a" {
		t.Errorf("what is no JSON has nothing at any pointer: %q, %t", place, ok)
	}
}

func TestInvalid(t *testing.T) {
	deep := strings.Repeat(`{"$not":`, 20) + `1` + strings.Repeat(`}`, 20)
	var many []string
	for i := range filter.MaxConditions + 1 {
		many = append(many, fmt.Sprintf(`"ptr:/%d":1`, i))
	}
	for text, want := range map[string]string{
		``:                                  "JSON",
		`[]`:                                "object",
		`"x"`:                               "object",
		`null`:                              "object",
		`{"a":1}`:                           "a place is",
		`{"ptr:a":1}`:                       "slash",
		`{"ptr:/a~2":1}`:                    "~",
		`{"header:a b":1}`:                  "header",
		`{"header:":1}`:                     "header",
		`{"form:":1}`:                       "form",
		`{"query:":1}`:                      "a place is",
		`{"query:token":1}`:                 "token",
		`{"header:authorization":1}`:        "secret",
		`{"header:Cookie":1}`:               "secret",
		`{"ptr:/a":{}}`:                     "no operator",
		`{"ptr:/a":{"$eq":1}}`:              "$eq",
		`{"ptr:/a":{"b":1}}`:                `"b"`,
		`{"ptr:/a":[]}`:                     "empty",
		`{"ptr:/a":[[1]]}`:                  "list",
		`{"ptr:/a":[{"$not":1}]}`:           "list",
		`{"ptr:/a":{"$exists":1}}`:          "true or false",
		`{"ptr:/a":{"$exists":null}}`:       "true or false",
		`{"ptr:/a":{"$prefix":1}}`:          "text",
		`{"ptr:/a":{"$prefix":null}}`:       "text",
		`{"ptr:/a":{"$gt":"1"}}`:            "number",
		`{"ptr:/a":{"$lte":null}}`:          "number",
		`{"ptr:/a":{"$gt":[1]}}`:            "number",
		`{"ptr:/a":1,"ptr:/a":2}`:           "twice",
		`{"ptr:/a":{"$gt":1,"$gt":2}}`:      "twice",
		`{"ptr:/a":` + deep + `}`:           "deep",
		`{` + strings.Join(many, ",") + `}`: "places",
		`{"ptr:/a":"` + strings.Repeat("x", filter.MaxBytes) + `"}`: "bytes",
		`{"ptr:/a":1} x`: "JSON",
	} {
		f, err := filter.Parse([]byte(text))
		var wrong *filter.Error
		if f != nil || !errors.As(err, &wrong) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q", text, err, want)
		}
	}
	if f := parse(t,
		" { \"ptr:/b\" : 1 ,\n\"ptr:/a\":[1, 2] } "); f.String() != `{"ptr:/b":1,"ptr:/a":[1,2]}` {
		t.Errorf("the order is lost: %s", f)
	}
}

// referenceMatch is an independent implementation of Filter.Match, with which the tests compare it.
// It decodes documents with encoding/json, and compares numbers as fractions of any size.
func referenceMatch(filterText string, r *sender.Request) bool {
	//nolint:forcetypeassert,errcheck // it was parsed
	conditions := decode([]byte(filterText)).(map[string]any)
	form := url.Values{}
	if strings.HasPrefix(r.Header["Content-Type"][0], "application/x-www-form-urlencoded") {
		if values, err := url.ParseQuery(string(r.Body)); err == nil {
			form = values
		}
	}
	var document any
	text := r.Body
	if form.Has("payload") {
		text = []byte(form.Get("payload"))
	}
	valid := json.Valid(text) && utf8.Valid(text)
	if valid {
		document = decode(text)
	}
	for place, condition := range conditions {
		kind, rest, _ := strings.Cut(place, ":")
		var v any
		there := false
		switch kind {
		case "ptr":
			if valid {
				v, there = at(document, strings.Split(rest[1:], "/"))
			}
		case "header":
			if values := r.Header[http.CanonicalHeaderKey(rest)]; len(values) > 0 {
				v, there = loose(values[0]), true
			}
		case "form":
			if form.Has(rest) {
				v, there = loose(form.Get(rest)), true
			}
		case "query":
			if values, err := url.ParseQuery(r.Query); err == nil && values.Has(rest) {
				v, there = loose(values.Get(rest)), true
			}
		}
		if !meets(condition, v, there) {
			return false
		}
	}
	return true
}

// loose is the value of a header, form field or query parameter. Unlike a JSON string, it also
// equals a number or a boolean with the same text.
type loose string

func decode(text []byte) any {
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber()
	var v any
	if err := decoder.Decode(&v); err != nil {
		panic(err)
	}
	return v
}

func at(v any, path []string) (any, bool) {
	for _, name := range path {
		name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
		switch in := v.(type) {
		case map[string]any:
			next, ok := in[name]
			if !ok {
				return nil, false
			}
			v = next
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || strconv.Itoa(i) != name || i < 0 || i >= len(in) {
				return nil, false
			}
			v = in[i]
		default:
			return nil, false
		}
	}
	return v, true
}

func rational(v any) *big.Rat {
	var text string
	switch n := v.(type) {
	case json.Number:
		text = string(n)
	case loose:
		if !json.Valid([]byte(n)) || strings.TrimSpace(string(n)) != string(n) ||
			!strings.ContainsAny(string(n[:1]), "-0123456789") {
			return nil
		}
		text = string(n)
	default:
		return nil
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return nil
	}
	return r
}

func same(want, v any) bool {
	switch w := want.(type) {
	case nil:
		return v == nil
	case json.Number:
		n := rational(v)
		return n != nil && n.Cmp(rational(w)) == 0
	case string:
		return v == w || v == loose(w)
	case bool:
		return v == w || v == loose(strconv.FormatBool(w))
	}
	return false
}

func meets(condition, v any, there bool) bool {
	switch c := condition.(type) {
	case []any:
		for _, one := range c {
			if there && same(one, v) {
				return true
			}
		}
		return false
	case map[string]any:
		for operator, operand := range c {
			ok := false
			n, bound := rational(v), rational(operand)
			switch operator {
			case "$not":
				ok = !meets(operand, v, there)
			case "$exists":
				ok = there == operand
			case "$prefix":
				text, isText := v.(string)
				if l, isLoose := v.(loose); isLoose {
					text, isText = string(l), true
				}
				//nolint:forcetypeassert,errcheck // it was parsed
				ok = isText && strings.HasPrefix(text, operand.(string))
			case "$gt":
				ok = n != nil && n.Cmp(bound) > 0
			case "$gte":
				ok = n != nil && n.Cmp(bound) >= 0
			case "$lt":
				ok = n != nil && n.Cmp(bound) < 0
			case "$lte":
				ok = n != nil && n.Cmp(bound) <= 0
			}
			if !ok {
				return false
			}
		}
		return true
	}
	return there && same(condition, v)
}

var names = []string{"a", "b", "c", "0", "1", "a/b", "~", "ü", "e\"f", ""}

func pick[T any](r *rand.Rand, choices []T) T { return choices[r.IntN(len(choices))] }

func randomScalar(r *rand.Rand) any {
	return pick(r, []any{
		"", "x", "open", "opened", "ü\u2028", "a\"\\\n", "5", "true", nil, true, false,
		json.Number("0"), json.Number("-0.0"), json.Number("5"), json.Number("5.0"),
		json.Number("50e-1"),
		json.Number("-5"), json.Number("1e20"), json.Number("100000000000000000000"),
		json.Number("100000000000000000001"), json.Number("0.1"), json.Number("1E-1"),
		json.Number("-17.25"),
	})
}

func randomDocument(r *rand.Rand, depth int) any {
	switch n := r.IntN(6); {
	case n < 3 && depth > 0:
		object := map[string]any{}
		for range r.IntN(5) {
			object[pick(r, names)] = randomDocument(r, depth-1)
		}
		return object
	case n == 3 && depth > 0:
		array := []any{}
		for range r.IntN(4) {
			array = append(array, randomDocument(r, depth-1))
		}
		return array
	}
	return randomScalar(r)
}

func randomCondition(r *rand.Rand, depth int) any {
	switch n := r.IntN(8); {
	case n < 3:
		return randomScalar(r)
	case n == 3:
		list := []any{}
		for range 1 + r.IntN(3) {
			list = append(list, randomScalar(r))
		}
		return list
	}
	operators := map[string]any{}
	for range 1 + r.IntN(2) {
		switch r.IntN(5) {
		case 0:
			operators["$exists"] = r.IntN(2) == 0
		case 1:
			operators["$prefix"] = pick(r, []string{"", "op", "x", "5"})
		case 2:
			operators[pick(r, []string{"$gt", "$gte", "$lt", "$lte"})] = pick(r, []json.Number{
				"0", "5", "-5", "1e20", "0.1", "100000000000000000000.5",
			})
		default:
			if depth > 0 {
				operators["$not"] = randomCondition(r, depth-1)
			} else {
				operators["$exists"] = true
			}
		}
	}
	return operators
}

func randomPlace(r *rand.Rand) string {
	switch r.IntN(7) {
	case 0:
		return "header:" + pick(r, []string{"X-A", "x-b"})
	case 1:
		return "query:" + pick(r, []string{"a", "b"})
	case 2:
		return "form:" + pick(r, []string{"a", "b", "payload"})
	}
	place := "ptr:"
	for range 1 + r.IntN(3) {
		place += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(pick(r, names))
	}
	return place
}

func encode(t testing.TB, v any, indent bool) string {
	t.Helper()
	text, err := json.Marshal(v)
	if indent {
		text, err = json.MarshalIndent(v, " ", "\t")
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Filter.Match and the independent implementation, referenceMatch, give the same result for random
// filters and documents.
func TestAgainstASecondEvaluation(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 0))
	outcomes := map[bool]int{}
	for range 200 {
		body := encode(t, randomDocument(r, 3), r.IntN(2) == 0)
		if r.IntN(10) == 0 {
			body = pick(r, []string{"", "x", body + "}", "\xff"})
		}
		in := jsonRequest(body)
		switch r.IntN(4) {
		case 0:
			in = formRequest("a=%C3%BC&b=5&a=x&payload=" + url.QueryEscape(body))
		case 1:
			in = formRequest(pick(r, []string{"a=op", "b=true&a=5.0", "a", ""}))
		}
		in.Header["X-A"] = []string{
			pick(r, []string{"", "x", "5", "5.0", "opened", "true"}), "second",
		}
		in.Query = pick(r, []string{"", "a=5", "a=op&b=%C3%BC", "b=true&b=x", "a"})
		for range 200 {
			conditions := map[string]any{}
			for range 1 + r.IntN(3) {
				conditions[randomPlace(r)] = randomCondition(r, 2)
			}
			text := encode(t, conditions, false)
			place, got := parse(t, text).Match(in)
			if want := referenceMatch(text, in); got != want {
				t.Fatalf("%s\nof %q, %v, %q: %t (%s), referenceMatch says %t", text, in.Body,
					in.Header, in.Query, got, place, want)
			}
			outcomes[got]++
		}
	}
	if outcomes[true] < 2000 || outcomes[false] < 2000 {
		t.Errorf("%v: one outcome is hardly tried", outcomes)
	}
}

// FuzzFilter checks three properties. The text of every valid filter can be parsed again and stays
// the same. The filter can be evaluated for any body and query. Match agrees with the reference
// implementation, referenceMatch, unless the input is ambiguous. The body is a form or a JSON
// document. The header X-A has the same value as the query.
func FuzzFilter(f *testing.F) {
	f.Add(`{"ptr:/a":1}`, []byte(`{"a":1}`), "a=1", false)
	f.Add(`{"ptr:/a/b":{"$not":"x"},"query:a":["1"]}`,
		[]byte(` { "a" : { "b" : [ 1 , {"c":"\"\\"} ] } } `), "a=1", false)
	f.Add(`{"ptr:/0":{"$gte":1e5}}`, []byte(`[1e5,"\ud800"]`), "", false)
	f.Add(`{"ptr:/a":{"$exists":false}}`, []byte(`{"\u0061":null}`), "", false)
	f.Add(`{"ptr:/a":"a","ptr:/b":"a"}`, []byte(`{"a":"a","b":"a","e":[5,{"a":5}]}`), "", false)
	f.Add(`{"header:X-A":{"$lt":2E-3}}`, []byte("\xff"), "0.1e-2", false)
	f.Add(`{"form:a":"b c","query:a":""}`, []byte("a=b+c&a=d"), "a", true)
	f.Add(`{"ptr:/a":5,"form:payload":{"$prefix":"{"}}`, []byte("payload=%7B%22a%22:5.0%7D"), "%zz",
		true)
	f.Fuzz(func(t *testing.T, text string, body []byte, query string, isForm bool) {
		compiled, err := filter.Parse([]byte(text))
		if err != nil {
			return
		}
		if again, err := filter.Parse([]byte(compiled.String())); err != nil ||
			again.String() != compiled.String() {
			t.Fatalf("%s is not stable: %v", compiled, err)
		}
		in := jsonRequest(string(body))
		if isForm {
			in = formRequest(string(body))
		}
		in.Query, in.Header["X-A"] = query, []string{query}
		_, got := compiled.Match(in)
		if ambiguous(text) || ambiguousRequest(in, isForm) {
			return
		}
		if want := referenceMatch(text, in); got != want {
			t.Fatalf("%s\nof %q, %q: %t, referenceMatch says %t", text, body, query, got,
				want)
		}
	})
}

// ambiguousRequest reports whether Match and referenceMatch may read a request differently, so that
// their results cannot be compared. This is the case if the body is ambiguous, if net/url rejects a
// part of a form or of the query, or if a value has a long exponent.
func ambiguousRequest(r *sender.Request, isForm bool) bool {
	fields, err := url.ParseQuery(r.Query)
	if err != nil || longExponent.MatchString(r.Query) {
		return true
	}
	body := string(r.Body)
	if isForm {
		form, err := url.ParseQuery(body)
		if err != nil {
			return true
		}
		fields["form"] = nil
		for _, values := range form {
			fields["form"] = append(fields["form"], values...)
		}
		if form.Has("payload") {
			body = form.Get("payload")
		}
	}
	for _, values := range fields {
		if slices.ContainsFunc(values, longExponent.MatchString) {
			return true
		}
	}
	return ambiguous(body)
}

// longExponent matches a number with an exponent of more than three digits. The function
// referenceMatch would need too much memory to represent such a number as a fraction.
var longExponent = regexp.MustCompile(`[0-9][eE][-+]?[0-9]{4}`)

// ambiguous reports whether Match and the reference implementation, referenceMatch, interpret
// a document differently. This is the case if an object has two members with the same name, because
// referenceMatch decodes objects into maps, or if a number has a long exponent.
func ambiguous(text string) bool {
	type container struct {
		members map[string]bool // nil in an array
		isValue bool            // whether the next token is the value of a member
	}
	open := []container{{}}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	for {
		token, err := decoder.Token()
		if err != nil {
			return false
		}
		in := &open[len(open)-1]
		if name, ok := token.(string); ok && in.members != nil && !in.isValue {
			if in.members[name] {
				return true
			}
			in.members[name], in.isValue = true, true
			continue
		}
		in.isValue = false
		switch token := token.(type) {
		case json.Number:
			if longExponent.MatchString(token.String()) {
				return true
			}
		case json.Delim:
			switch token {
			case '{':
				open = append(open, container{members: map[string]bool{}})
			case '[':
				open = append(open, container{})
			default:
				open = open[:len(open)-1]
			}
		}
	}
}

// BenchmarkMatch measures the cost of a filter for a request of 1 KB.
func BenchmarkMatch(b *testing.B) {
	body := `{"action":"opened","number":17,"pull_request":{"title":"` + strings.Repeat("x", 900) +
		`","draft":false},"repository":{"full_name":"a/b"}}`
	f := parse(b,
		`{"header:X-GitHub-Event":"pull_request","ptr:/action":["opened","reopened"],"ptr:/pull_request/draft":false,"ptr:/repository/full_name":{"$prefix":"a/"}}`)
	r := jsonRequest(body)
	r.Header["X-Github-Event"] = []string{"pull_request"}
	r.KnownJSON = true
	b.ReportAllocs()
	for b.Loop() {
		if place, ok := f.Match(r); !ok {
			b.Fatal(place)
		}
	}
}
