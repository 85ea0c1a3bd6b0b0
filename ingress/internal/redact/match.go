package redact

import (
	"strings"

	"github.com/hookstart/hookstart/shared/webhook"
)

// redactMatches replaces each match in text with the constant replacement. It calls match for each
// index in text at which a match may begin. match returns the index after the match, or 0 if there
// is none.
func redactMatches(text string, match func(at int) int) string {
	var clean strings.Builder
	done := 0
	for at := 0; at < len(text); at++ {
		if end := match(at); end > 0 {
			clean.WriteString(text[done:at])
			clean.WriteString(replacement)
			done, at = end, end-1
		}
	}
	if done == 0 {
		return text
	}
	clean.WriteString(text[done:])
	return clean.String()
}

// matchToken returns the index after the token that begins at text[at], or 0 if there is none. A
// token is webhook.TokenPrefix and at least atLeast characters of base64url, all of which may be
// percent-encoded.
func matchToken(text string, at, atLeast int) (end int) {
	for i := range len(webhook.TokenPrefix) {
		c, next := decodeChar(text, at)
		if c != webhook.TokenPrefix[i] {
			return 0
		}
		at = next
	}
	for n := 0; ; n++ {
		c, next := decodeChar(text, at)
		if next == at || !isBase64URL(c) {
			if n < atLeast {
				return 0
			}
			return at
		}
		at = next
	}
}

// requiredMatchChars is the number of leading characters of a value that must match an escaped
// text. If they match, the value counts as found and is redacted, even if a later character
// differs.
const requiredMatchChars = 64

// matchEscaped looks for value, possibly escaped, at text[at]. It returns the index after the
// match, or 0 if there is none. Only the first requiredMatchChars characters must match. If a
// later character differs, the match ends before that character.
func matchEscaped(text string, at int, value string) (end int) {
	for i := range len(value) {
		c, next := decodeChar(text, at)
		if next == at || (c != value[i] && (c != '+' || value[i] != ' ')) {
			if i < requiredMatchChars {
				return 0
			}
			return at
		}
		at = next
	}
	return at
}

// decodeChar decodes the character at a position, even if it is escaped several times, and returns
// the position of the next one.
func decodeChar(text string, at int) (c byte, next int) {
	if at < len(text) && text[at] != '%' {
		return text[at], at + 1 // nearly always; short enough for the compiler to inline
	}
	return decodeEscaped(text, at)
}

// decodeEscaped does the same as decodeChar. It is the slow path, for the case that the character
// may be escaped.
func decodeEscaped(text string, at int) (c byte, next int) {
	if at >= len(text) {
		return 0, at
	}
	next = at + 1
	for strings.HasPrefix(text[next:], "25") {
		next += 2
	}
	if next+1 < len(text) {
		high, isHigh := hexDigit(text[next])
		low, isLow := hexDigit(text[next+1])
		if isHigh && isLow {
			return high<<4 | low, next + 2
		}
	}
	return '%', at + 1
}

func hexDigit(c byte) (value byte, ok bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10, true
	default:
		return 0, false
	}
}

func isBase64URL(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' ||
		c == '_'
}
