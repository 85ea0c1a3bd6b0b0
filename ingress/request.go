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
	"github.com/hookstart/hookstart/shared/webhook"
)

// splitQuery reads a raw query: the first token, and all other parameters. Unlike
// url.ParseQuery it loses nothing: a semicolon is a character, and what cannot be
// unescaped, or is not UTF-8 then, stays as it was sent.
func splitQuery(raw string) (token string, others execution.Values) {
	seen := false
	for raw != "" {
		var pair string
		pair, raw, _ = strings.Cut(raw, "&")
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		name, value = unescape(name), unescape(value)
		if name == "token" {
			if !seen {
				token, seen = value, true
			}
			continue // none of them travels on, whichever is the right one
		}
		if others == nil {
			others = execution.Values{}
		}
		others[name] = append(others[name], value)
	}
	return token, others
}

func unescape(s string) string {
	plain, err := url.QueryUnescape(s)
	if err != nil || !utf8.ValidString(plain) {
		plain = s
	}
	return strings.ToValidUTF8(plain, "\uFFFD")
}

// deliveryID is the delivery ID in force: of the first header that is not empty.
func (h *handler) deliveryID(header http.Header) string {
	for _, name := range h.deliveryIDHeaders {
		for _, value := range header[name] {
			if value != "" {
				return value
			}
		}
	}
	return ""
}

// hiddenToken stands where a header or a parameter repeats the token: a proxy may put the
// whole URL into one.
const hiddenToken = "[token]"

func hideToken(text, token string) string { return strings.ReplaceAll(text, token, hiddenToken) }

// forwardedQuery are the parameters as a runner gets them. They are made of the given ones.
func forwardedQuery(query execution.Values, token string) execution.Values {
	for name, values := range query {
		for i, value := range values {
			values[i] = hideToken(value, token)
		}
		if clean := hideToken(name, token); clean != name {
			delete(query, name)
			query[clean] = values
		}
	}
	return query
}

var secretHeaders = webhook.SecretHeaders()

// forwardedHeaders are the request's headers as a runner gets them. They are made of the
// request's own, which are not those that came any more.
func forwardedHeaders(r *http.Request, token string) execution.Values {
	headers := execution.Values(r.Header)
	for _, name := range secretHeaders {
		delete(headers, name)
	}
	for _, values := range headers { // their names are ASCII: net/http refuses others
		for i, value := range values {
			values[i] = hideToken(headerText(value), token)
		}
	}
	if r.Host != "" {
		headers["Host"] = []string{hideToken(headerText(r.Host), token)} // net/http takes it out of the headers
	}
	return headers
}

// headerText reads bytes that are not UTF-8 as ISO 8859-1, the traditional encoding of
// HTTP headers.
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

// nextTrace is the W3C traceparent of this request: a new span in the sender's trace,
// or in a new one when it sent none.
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

// validTrace checks version 00 of the W3C's form, of which later versions keep the
// beginning.
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
