package ingress

import (
	"net/http"
	"slices"
	"strings"

	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/webhook"
)

// redactedToken replaces a token in a header or a parameter: a proxy may have copied the whole URL
// there.
const redactedToken = "[token]"

// redactor removes tokens from data that is forwarded or shown. It removes all text that looks like
// a hookstart token, and the values of every header and parameter of the request that may hold its
// token. It finds them however often they are escaped: a URL in a parameter of another URL is
// escaped twice.
type redactor struct {
	// more holds the values that do not match the pattern of hookstart's tokens, both as sent and
	// unescaped.
	more []string
}

const (
	// minTokenLength is the minimum number of characters after the prefix for text to be treated as
	// a token; a token has 43.
	minTokenLength = 20
	// shortestRedacted is the minimum length of the other values that are redacted: a message must
	// not become longer than the request.
	shortestRedacted = len(redactedToken)
	// maxRedacted limits the number of the other values to keep the cost of a request proportional
	// to its length.
	maxRedacted = 16
)

// newRedactor returns a redactor for the tokens in a request's raw query and headers. Values that
// do not have the form of hookstart's tokens are redacted only if they have at least shortest
// bytes.
func newRedactor(rawQuery string, header http.Header, shortest int) redactor {
	var h redactor
	h.add(bearerToken(header), shortest)
	for rawQuery != "" && len(h.more) < maxRedacted {
		var pair string
		pair, rawQuery, _ = strings.Cut(rawQuery, "&")
		if name, raw, _ := strings.Cut(pair, "="); isToken(name) {
			h.add(raw, shortest)
		}
	}
	return h
}

// add adds a value, as sent and unescaped, unless it has the form of hookstart's tokens.
func (h *redactor) add(raw string, shortest int) {
	if raw == "" || matchToken(raw, 0, minTokenLength) == len(raw) {
		return
	}
	for _, text := range [...]string{unescape(raw), raw} {
		if len(text) >= max(shortest, 1) && !slices.Contains(h.more, text) {
			h.more = append(h.more, text)
		}
	}
}

// redact returns text with its tokens replaced by redactedToken. If there are none, it returns text
// unchanged.
func (h redactor) redact(text string) string {
	escaped := strings.IndexByte(text, '%') >= 0
	if escaped || strings.Contains(text, registry.TokenPrefix) {
		text = replace(text, func(at int) int { return matchToken(text, at, minTokenLength) })
	}
	for _, secret := range h.more {
		text = strings.ReplaceAll(text, secret, redactedToken)
		if escaped {
			text = replace(text, func(at int) int { return matchEscaped(text, at, secret) })
		}
	}
	return text
}

// replace replaces each match with redactedToken. match returns the end of the match that begins at
// the given position, or 0 if there is none. replace takes linear time if match does.
func replace(text string, match func(at int) int) string {
	var clean strings.Builder
	done := 0
	for at := 0; at < len(text); at++ {
		if end := match(at); end > 0 {
			clean.WriteString(text[done:at])
			clean.WriteString(redactedToken)
			done, at = end, end-1
		}
	}
	if done == 0 {
		return text
	}
	clean.WriteString(text[done:])
	return clean.String()
}

// matchToken returns the end of the token that begins at a position, or 0 if there is none. A token
// is the prefix followed by at least atLeast characters of base64url.
func matchToken(text string, at, atLeast int) (end int) {
	for i := range len(registry.TokenPrefix) {
		c, next := decodeChar(text, at)
		if c != registry.TokenPrefix[i] {
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

// comparedEscaped is the number of characters of an escaped value that are compared. If they match,
// the value is removed.
const comparedEscaped = 64

// matchEscaped returns the end of the escaped value that begins at a position, or 0 if there is
// none. Beyond comparedEscaped characters a mismatch only ends the match.
func matchEscaped(text string, at int, secret string) (end int) {
	for i := range len(secret) {
		c, next := decodeChar(text, at)
		if next == at || (c != secret[i] && (c != '+' || secret[i] != ' ')) {
			if i < comparedEscaped {
				return 0
			}
			return at
		}
		at = next
	}
	return at
}

// decodeChar decodes the character at a position, however often it is escaped, and returns the
// position of the next one.
func decodeChar(text string, at int) (c byte, next int) {
	if at >= len(text) {
		return 0, at
	}
	if text[at] != '%' {
		return text[at], at + 1
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

// forwardedQuery returns the parameters of a raw query as a runner receives them. Their size is
// bounded by the limit of 32 KB for the request line and headers.
func (h redactor) forwardedQuery(raw string) execution.Values {
	query := otherParameters(raw)
	for name, values := range query {
		for i, value := range values {
			values[i] = h.redact(value)
		}
		if clean := h.redact(name); clean != name {
			delete(query, name)
			query[clean] = append(query[clean], values...)
		}
	}
	return query
}

var secretHeaders = webhook.SecretHeaders()

// forwardedHeaders adds the request's headers to into, as a runner receives them: without
// credentials and without the dropped headers. It does not modify the request's headers.
func (h redactor) forwardedHeaders(
	into execution.Values, r *http.Request, dropped []string,
) execution.Values {
	for name, values := range r.Header { // names are ASCII: net/http rejects others
		if !slices.Contains(secretHeaders, name) && !slices.Contains(dropped, name) {
			into[name] = h.redactAll(values)
		}
	}
	if r.Host != "" {
		// net/http removes Host from the headers.
		into["Host"] = []string{h.redact(headerText(r.Host))}
	}
	return into
}

// redactAll returns the values with their tokens replaced. If there are none, it returns the same
// slice.
func (h redactor) redactAll(values []string) []string {
	for i, value := range values {
		clean := h.redact(headerText(value))
		if clean == value {
			continue
		}
		cleaned := slices.Clone(values)
		cleaned[i] = clean
		for j := i + 1; j < len(values); j++ {
			cleaned[j] = h.redact(headerText(values[j]))
		}
		return cleaned
	}
	return values
}
