package ingress

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/hookstart/hookstart/shared/execution"
)

// findToken returns the first token of a raw query. It stops at the token: the request is not authenticated yet.
func findToken(raw string) string {
	for raw != "" {
		var pair string
		pair, raw, _ = strings.Cut(raw, "&")
		name, value, _ := strings.Cut(pair, "=")
		if isToken(name) {
			return unescape(value)
		}
	}
	return ""
}

// isToken reports whether the name of a parameter, which may be escaped, is token.
func isToken(name string) bool {
	const token = "token"
	if len(name) < len(token) || len(name) > 3*len(token) {
		return false
	}
	at := 0
	for i := range len(token) {
		switch {
		case at < len(name) && name[at] == token[i]:
			at++
		case at+2 < len(name) && name[at] == '%':
			high, isHigh := hexDigit(name[at+1])
			low, isLow := hexDigit(name[at+2])
			if !isHigh || !isLow || high<<4|low != token[i] {
				return false
			}
			at += 3
		default:
			return false
		}
	}
	return at == len(name)
}

// otherParameters parses a raw query and leaves out every parameter named token, valid or not. Unlike url.ParseQuery it
// loses nothing: a semicolon is an ordinary character, and a value that cannot be unescaped, or is not UTF-8 afterwards,
// stays as it was sent.
func otherParameters(raw string) execution.Values {
	var others execution.Values
	var room []string // of the values; most names have one
	for raw != "" {
		var pair, rest string
		pair, rest, _ = strings.Cut(raw, "&")
		name, value, _ := strings.Cut(pair, "=")
		if pair == "" || isToken(name) {
			raw = rest
			continue
		}
		if others == nil {
			most := strings.Count(raw, "&") + 1
			others, room = make(execution.Values, most), make([]string, 0, most)
		}
		raw = rest
		name, value = unescape(name), unescape(value)
		if values := others[name]; values != nil {
			others[name] = append(values, value)
			continue
		}
		room = append(room, value)
		others[name] = room[len(room)-1 : len(room) : len(room)]
	}
	return others
}

func unescape(s string) string {
	if !strings.ContainsAny(s, "%+") {
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	plain, err := url.QueryUnescape(s)
	if err != nil || !utf8.ValidString(plain) {
		plain = s
	}
	return strings.ToValidUTF8(plain, "\uFFFD")
}

// headerText reads bytes that are not UTF-8 as ISO 8859-1, the traditional encoding of HTTP headers.
func headerText(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var text strings.Builder
	for i := range len(s) {
		text.WriteRune(rune(s[i]))
	}
	return text.String()
}

// nextTrace returns the W3C traceparent of this request: a new span in the sender's trace, or in a new trace if the
// sender sent none.
func nextTrace(header http.Header) string {
	var ids [24]byte
	binary.NativeEndian.PutUint64(ids[0:], rand.Uint64()|1)  //nolint:gosec // IDs, no secrets; |1: never zero
	binary.NativeEndian.PutUint64(ids[8:], rand.Uint64())    //nolint:gosec // as above
	binary.NativeEndian.PutUint64(ids[16:], rand.Uint64()|1) //nolint:gosec // as above
	var text [55]byte
	copy(text[:], "00-")
	hex.Encode(text[3:35], ids[:16])
	copy(text[35:], "-")
	hex.Encode(text[36:52], ids[16:])
	copy(text[52:], "-00")
	if given := header["Traceparent"]; len(given) == 1 && validTrace(given[0]) {
		copy(text[3:35], given[0][3:35])
		copy(text[53:], given[0][53:55])
	}
	return string(text[:])
}

// validTrace checks the format of W3C's version 00. Later versions begin in the same way.
func validTrace(s string) bool {
	if len(s) < 55 || (len(s) > 55 && (s[:2] == "00" || s[55] != '-')) || s[:2] == "ff" {
		return false
	}
	for i := range 55 {
		c := s[i]
		if i == 2 || i == 35 || i == 52 {
			if c != '-' {
				return false
			}
		} else if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return strings.Trim(s[3:35], "0") != "" && strings.Trim(s[36:52], "0") != ""
}
