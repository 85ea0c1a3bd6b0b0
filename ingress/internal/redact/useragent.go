package redact

import "net/http"

// maxUserAgent is the maximum length of a User-Agent, in bytes. A longer one is replaced as a
// whole: no sender needs that length, and replacing a token of one letter would make it longer.
const maxUserAgent = 1 << 10

// UserAgent returns r's User-Agent with every token redacted, valid or not. It is stricter than a
// Redactor, because it is stored for refused requests, whose tokens are often incomplete or
// mistyped. It redacts a value in the place of a token even if the value is short. It replaces the
// whole text if the text contains the prefix of tokens, or is longer than maxUserAgent.
func UserAgent(r *http.Request) string {
	text := r.Header.Get("User-Agent")
	if text == "" {
		return ""
	}
	if len(text) > maxUserAgent {
		return replacement
	}
	strict := Redactor{request: r, shortest: 1}
	text = strict.Text(text)
	if hasTokenPrefix(text) {
		return replacement // it contains a token that is not this request's
	}
	return text
}

// hasTokenPrefix reports whether a text contains the prefix of tokens.
func hasTokenPrefix(text string) bool {
	for at := range len(text) {
		if matchToken(text, at, 0) > 0 {
			return true
		}
	}
	return false
}
