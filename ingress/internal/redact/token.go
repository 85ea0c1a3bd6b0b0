package redact

import (
	"net/http"
	"strings"
)

// Names of the parameters that may hold a token.
const (
	tokenParameter = "token"
	// accessTokenParameter is the query parameter for bearer tokens in RFC 6750. The CloudEvents
	// specification for webhooks requires it.
	accessTokenParameter = "access_token"
)

// Token returns the token of the request: the first non-empty value of the token parameter, the
// access_token parameter, and the Authorization header with the Bearer scheme, in this order, or ""
// if there is none. Token allocates nothing for a token that is not escaped, because the request
// has not been authenticated yet.
func (r *Redactor) Token() string {
	raw, access := r.request.URL.RawQuery, ""
	for raw != "" {
		var pair string
		pair, raw, _ = strings.Cut(raw, "&")
		name, value, _ := strings.Cut(pair, "=")
		switch {
		case value == "":
		case matchesEscapedName(name, tokenParameter):
			return unescape(value)
		case access == "" && matchesEscapedName(name, accessTokenParameter):
			access = value
		}
	}
	if access != "" {
		return unescape(access)
	}
	return bearerToken(r.request.Header)
}

// bearerToken returns the token of the Authorization header, or "" if no such header has the Bearer
// scheme.
func bearerToken(header http.Header) string {
	const bearer = "bearer "
	for _, value := range header["Authorization"] {
		if len(value) > len(bearer) && strings.EqualFold(value[:len(bearer)], bearer) {
			if token := strings.TrimSpace(value[len(bearer):]); token != "" {
				return HeaderToUTF8(token)
			}
		}
	}
	return ""
}

// isTokenParameter reports whether a parameter of this name, which may be escaped, holds a token.
func isTokenParameter(name string) bool {
	return matchesEscapedName(name, tokenParameter) || matchesEscapedName(name,
		accessTokenParameter)
}

// matchesEscapedName reports whether a parameter's name, which may be escaped, equals want.
func matchesEscapedName(name, want string) bool {
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
