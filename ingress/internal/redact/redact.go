// Package redact removes tokens from every part of a request that leaves the ingress.
//
// The token of a trigger node is a password: anybody who has it can start executions. It is sent in
// the URL or in the Authorization header, but it may also be in other places: a proxy may have
// copied the whole URL into a header, and a sender may have put the webhook's URL into another
// parameter or into its User-Agent. Data that leaves the ingress is stored in streams and
// databases, is delivered to runners, and is shown to operators, who may not be allowed to see
// tokens. It consists of:
//
//   - the headers of an execution or a rejection. Headers whose purpose is to carry a credential
//     are removed (IsSecretHeader). The values of the others are redacted.
//   - its query. The parameters that may hold the token are removed, even if their value is not the
//     valid token. The names and values of the others are redacted.
//   - single values of the request: the content type, the delivery ID and the order key.
//   - the User-Agent that is stored for a refused request (UserAgent).
//
// The log, the metrics and the spans of the ingress are not redacted: from the request, they
// contain only IDs that were found in the registry. The body is not redacted either: it is the
// sender's data, and runners receive exactly the bytes that were sent.
//
// Each request has one Redactor, which New returns when the request is parsed. It removes two kinds
// of text, even if they are percent-encoded several times: any text that looks like a token
// (webhook.TokenPrefix and at least 20 characters), and every value that the request sends where a
// token belongs, in the Authorization header or in a token parameter. It removes such a value even
// if it is not a valid token, because it may be the password of something else.
//
// Until its token has been validated, a request must cost little: New and Token allocate nothing
// for a token that is not escaped, and everything else is computed on first use.
package redact

import (
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hookstart/hookstart/shared/webhook"
)

// replacement is the text that replaces a token.
const replacement = "[token]"

const (
	// minTokenLength is the minimum number of characters after the prefix for text to be treated as
	// a token. A complete token has 43.
	minTokenLength = 20
	// minRedactedValueLength is the minimum length, in bytes, of a value that does not look like a
	// token and is redacted only because it was sent where a token belongs. Replacing a shorter
	// value would lengthen the text, and a message could become longer than the request.
	minRedactedValueLength = len(replacement)
	// maxRedactedValues is the maximum number of values per request that are redacted only because
	// they were sent where a token belongs (in the Authorization header or a token parameter). The
	// limit keeps the cost proportional to the length of the request.
	maxRedactedValues = 16
)

// A Redactor removes tokens from the data of one request. Only one goroutine may use it, and the
// request must not change.
type Redactor struct {
	request *http.Request
	// minValueLength is the minimum length, in bytes, of an element of tokenValues.
	minValueLength int
	// tokenValues holds the values that were sent where a token belongs (in the Authorization
	// header and the token parameters) but do not look like tokens. It holds each value both as
	// sent and unescaped. findTokenValues fills it in.
	tokenValues      []string
	tokenValuesFound bool // findTokenValues was called
}

// New returns the Redactor of r. It searches for no tokens yet, so it is cheap.
func New(r *http.Request) Redactor {
	return Redactor{request: r, minValueLength: minRedactedValueLength}
}

// RedactText returns text with its tokens replaced. If there are none, it returns text unchanged.
// If text is valid UTF-8, so is the result: what is left of a character of which a token covers
// only some bytes becomes U+FFFD.
func (r *Redactor) RedactText(text string) string {
	clean := r.redactTokens(text)
	if clean != text && utf8.ValidString(text) {
		return strings.ToValidUTF8(clean, "\uFFFD")
	}
	return clean
}

func (r *Redactor) redactTokens(text string) string {
	r.findTokenValues()
	escaped := strings.IndexByte(text, '%') >= 0
	if escaped || strings.Contains(text, webhook.TokenPrefix) {
		text = redactMatches(text, func(at int) int { return matchToken(text, at, minTokenLength) })
	}
	for _, value := range r.tokenValues {
		text = strings.ReplaceAll(text, value, replacement)
		if escaped {
			text = redactMatches(text, func(at int) int { return matchEscaped(text, at, value) })
		}
	}
	return text
}

// findTokenValues fills in r.tokenValues on its first call. Later calls do nothing.
func (r *Redactor) findTokenValues() {
	if r.tokenValuesFound {
		return
	}
	r.tokenValuesFound = true
	r.addTokenValue(bearerToken(r.request.Header))
	raw := r.request.URL.RawQuery
	for raw != "" && len(r.tokenValues) < maxRedactedValues {
		var pair string
		pair, raw, _ = strings.Cut(raw, "&")
		if name, value, _ := strings.Cut(pair, "="); isTokenParameter(name) {
			r.addTokenValue(value)
		}
	}
}

// addTokenValue adds a value to tokenValues, as sent and unescaped, unless it has the form of a
// token or is shorter than minValueLength.
func (r *Redactor) addTokenValue(raw string) {
	if raw == "" || matchToken(raw, 0, minTokenLength) == len(raw) {
		return
	}
	for _, text := range [...]string{unescape(raw), raw} {
		if len(text) >= max(r.minValueLength, 1) && !slices.Contains(r.tokenValues, text) {
			r.tokenValues = append(r.tokenValues, text)
		}
	}
}
