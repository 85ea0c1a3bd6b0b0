package filter

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"
)

// kind is the type of a value: null, a boolean, a number, text, an object or array, or no value at
// all.
type kind uint8

const (
	kindAbsent kind = iota // there is no value at the place
	kindNull
	kindBool
	kindNumber
	kindText
	kindOther // an object or an array
)

// value is the value at a place in a request.
type value struct {
	kind kind
	// text is the value of a header, a form field or a query parameter, which has no type. It is ""
	// for a value in JSON.
	text string
	// json is the value as written in the document. nil means that the value is not from JSON.
	json []byte
}

// equals reports whether v equals the filter's literal l. Text from a header, form field or query
// parameter has no type, so it also equals a number of the same value or a boolean with the same
// spelling.
func (v value) equals(l *literal) bool {
	switch l.kind {
	case kindText:
		text, ok := v.asText()
		return ok && text == l.text
	case kindNumber:
		number, ok := v.asNumber()
		return ok && number.compare(l.number) == 0
	case kindBool:
		if v.json == nil {
			return v.kind == kindText && v.text == strconv.FormatBool(l.boolValue)
		}
		return v.kind == kindBool && (v.json[0] == 't') == l.boolValue
	case kindNull:
		return v.kind == kindNull
	case kindAbsent, kindOther: // no literal is of these kinds
	}
	return false
}

func (v value) asText() (string, bool) {
	switch {
	case v.kind != kindText:
		return "", false
	case v.json == nil:
		return v.text, true
	}
	return unquote(v.json), true
}

func (v value) asNumber() (decimal, bool) {
	switch {
	case v.json == nil && v.kind == kindText && isJSONNumber(v.text):
		return parseDecimal(v.text), true
	case v.kind == kindNumber:
		return parseDecimal(string(v.json)), true
	}
	return decimal{}, false
}

// unquote decodes a JSON string, which must be valid and include its quotes.
func unquote(quoted []byte) string {
	inner := quoted[1 : len(quoted)-1]
	for _, c := range inner {
		if c == '\\' {
			var text string
			if json.Unmarshal(quoted, &text) != nil {
				return "" // cannot happen: the document is valid
			}
			return text
		}
	}
	return string(inner)
}

// decimal is the number 0.digits × 10^exponent. Numbers are compared exactly: two different
// integers, such as IDs, are never equal, even beyond 2^53, where a float64 would round them.
type decimal struct {
	negative bool
	digits   string // without leading or trailing zeros; "" means zero
	exponent int64
}

// maxExponent limits exponents in both directions: parseDecimal replaces a larger exponent with
// maxExponent, and one below -maxExponent with -maxExponent. This does not change the result of a
// comparison with an ordinary number, which never has that many digits.
const maxExponent = 1 << 60

// parseDecimal returns the value of a JSON number.
func parseDecimal(text string) decimal {
	var d decimal
	text, d.negative = strings.CutPrefix(text, "-")
	mantissa, exponent := text, ""
	if at := strings.IndexAny(text, "eE"); at >= 0 {
		mantissa, exponent = text[:at], text[at+1:]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := whole + fraction
	significant := strings.TrimLeft(digits, "0")
	d.exponent = int64(len(whole) - (len(digits) - len(significant)))
	if d.digits = strings.TrimRight(significant, "0"); d.digits == "" {
		return decimal{}
	}
	if exponent != "" {
		n, err := strconv.ParseInt(exponent, 10, 64)
		if err != nil || n > maxExponent || n < -maxExponent {
			n = maxExponent
			if exponent[0] == '-' {
				n = -maxExponent
			}
		}
		d.exponent += n
	}
	return d
}

// compare returns -1 if d is less than other, 0 if they are equal, and 1 if d is greater.
func (d decimal) compare(other decimal) int {
	if s, o := d.sign(), other.sign(); s != o || s == 0 {
		return cmp.Compare(s, o)
	}
	order := cmp.Or(cmp.Compare(d.exponent, other.exponent),
		strings.Compare(d.digits, other.digits))
	if d.negative {
		return -order
	}
	return order
}

func (d decimal) sign() int {
	switch {
	case d.digits == "":
		return 0
	case d.negative:
		return -1
	default:
		return 1
	}
}

// isJSONNumber reports whether text is a JSON number.
func isJSONNumber(text string) bool {
	digits := func() bool {
		rest := strings.TrimLeft(text, "0123456789")
		found := len(rest) < len(text)
		text = rest
		return found
	}
	text = strings.TrimPrefix(text, "-")
	if strings.HasPrefix(text, "0") {
		text = text[1:]
	} else if !digits() {
		return false
	}
	if rest, ok := strings.CutPrefix(text, "."); ok {
		if text = rest; !digits() {
			return false
		}
	}
	if text != "" && (text[0] == 'e' || text[0] == 'E') {
		if text = text[1:]; text != "" && (text[0] == '+' || text[0] == '-') {
			text = text[1:]
		}
		return digits() && text == ""
	}
	return text == ""
}
