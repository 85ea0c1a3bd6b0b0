package redact

import (
	"net/http"
	"slices"
)

// maxUserAgentBytes is the length, in bytes, to which a User-Agent is cut off before it is
// redacted. Redaction can make the text much longer, for example if the value sent as the token is
// a single letter. Callers keep much less of the result.
const maxUserAgentBytes = 1 << 10

// UserAgent returns the beginning of r's User-Agent with all tokens redacted. It is for refused
// requests, whose tokens are often incomplete or mistyped, so it is stricter than a Redactor:
// whatever r sent as its token is redacted, however short it is. If the text still contains the
// prefix that all tokens have, or if a long token may have been cut off at the end, the whole text
// is replaced.
func UserAgent(r *http.Request) string {
	text := r.Header.Get("User-Agent")
	if text == "" {
		return ""
	}
	strict := Redactor{request: r, minValueLength: 1}
	if len(text) > maxUserAgentBytes {
		strict.findTokenValues()
		if slices.ContainsFunc(strict.tokenValues, func(value string) bool {
			return len(value) > maxUserAgentBytes/2
		}) {
			return replacement // the value may be cut off, and would not be found
		}
		text = text[:maxUserAgentBytes]
	}
	text = strict.RedactText(text)
	if containsTokenPrefix(text) {
		return replacement // it contains a token that is not this request's
	}
	return text
}

// containsTokenPrefix reports whether a text contains the prefix of tokens.
func containsTokenPrefix(text string) bool {
	for at := range len(text) {
		if matchToken(text, at, 0) > 0 {
			return true
		}
	}
	return false
}
