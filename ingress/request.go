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

// findToken returns the token of a request. It is the first non-empty value among the token
// parameter, the access_token parameter, and the Authorization header with the Bearer scheme, in
// this order. findToken returns "" if there is none. It allocates nothing for a token that is not
// escaped, because the request has not been authenticated yet.
func findToken(raw string, header http.Header) string {
	access := ""
	for raw != "" {
		var pair string
		pair, raw, _ = strings.Cut(raw, "&")
		name, value, _ := strings.Cut(pair, "=")
		switch {
		case value == "":
		case isNamed(name, tokenParameter):
			return unescape(value)
		case access == "" && isNamed(name, accessParameter):
			access = value
		}
	}
	if access != "" {
		return unescape(access)
	}
	return bearerToken(header)
}

// Names of the parameters that may hold a token.
const (
	tokenParameter = "token"
	// accessParameter is the name in RFC 6750, which the CloudEvents specification for webhooks
	// requires.
	accessParameter = "access_token"
)

// bearerToken returns the token of the Authorization header, or "" if no such header has the Bearer
// scheme.
func bearerToken(header http.Header) string {
	const bearer = "bearer "
	for _, value := range header["Authorization"] {
		if len(value) > len(bearer) && strings.EqualFold(value[:len(bearer)], bearer) {
			if token := strings.TrimSpace(value[len(bearer):]); token != "" {
				return headerText(token)
			}
		}
	}
	return ""
}

// isToken reports whether a parameter of this name, which may be escaped, holds a token.
func isToken(name string) bool {
	return isNamed(name, tokenParameter) || isNamed(name, accessParameter)
}

// isNamed reports whether a parameter's name, which may be escaped, equals want.
func isNamed(name, want string) bool {
	if len(name) < len(want) || len(name) > 3*len(want) {
		return false
	}
	at := 0
	for i := range len(want) {
		switch {
		case at < len(name) && name[at] == want[i]:
			at++
		case at+2 < len(name) && name[at] == '%':
			high, isHigh := hexDigit(name[at+1])
			low, isLow := hexDigit(name[at+2])
			if !isHigh || !isLow || high<<4|low != want[i] {
				return false
			}
			at += 3
		default:
			return false
		}
	}
	return at == len(name)
}

// otherParameters parses a raw query and omits every parameter with the name of a token parameter,
// whether or not its token is valid. Unlike url.ParseQuery it loses nothing: a semicolon is an
// ordinary character. A value that cannot be unescaped, or would not be UTF-8 afterwards, is kept
// as sent.
func otherParameters(raw string) execution.Values {
	var others execution.Values
	var room []string // backing array for the values; most names have one
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

// headerText returns a header's value as UTF-8. A value that is not valid UTF-8 is decoded as ISO
// 8859-1, the traditional encoding of HTTP headers.
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

// nextTrace returns a W3C traceparent for this request. It is a new span in the sender's trace, or
// in a new trace if the sender sent no valid traceparent.
func nextTrace(header http.Header) string {
	var ids [24]byte
	//nolint:gosec // IDs, no secrets; |1: never zero
	binary.NativeEndian.PutUint64(ids[0:], rand.Uint64()|1)
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

// validTrace reports whether s is a valid W3C traceparent, in the format of version 00 or a later
// version, which begins with the same fields.
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

// pathAndQuery returns the path and query exactly as received.
func pathAndQuery(r *http.Request) string {
	if strings.HasPrefix(r.RequestURI, "/") {
		return r.RequestURI
	}
	return r.URL.RequestURI() // the request line holds a whole URL
}
