package redact

import (
	"net/url"
	"strings"
	"unicode/utf8"
)

// HeaderToUTF8 returns a header's value as UTF-8, the form in which values leave the ingress. It
// redacts nothing. A value that is not valid UTF-8 is decoded as ISO 8859-1, the traditional
// encoding of HTTP headers.
func HeaderToUTF8(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var text strings.Builder
	for i := range len(s) {
		text.WriteRune(rune(s[i]))
	}
	return text.String()
}

// unescape returns the text of a name or value of a raw query as UTF-8. Text that cannot be
// unescaped, or would not be UTF-8 afterwards, is kept as sent.
func unescape(s string) string {
	plain := s
	if strings.IndexByte(s, '%') >= 0 || strings.IndexByte(s, '+') >= 0 {
		if text, err := url.QueryUnescape(s); err == nil && utf8.ValidString(text) {
			plain = text
		}
	}
	if utf8.ValidString(plain) {
		return plain
	}
	return strings.ToValidUTF8(plain, "\uFFFD")
}
