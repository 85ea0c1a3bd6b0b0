package redact

import (
	"slices"

	"github.com/hookstart/hookstart/shared/webhook"
)

var secretHeaders = webhook.SecretHeaders()

// IsSecretHeader reports whether a header must never leave the ingress, because its purpose is to
// carry a credential. It is such a header if its name is in webhook.SecretHeaders or in ofSender,
// which holds the headers that contain the sender's secret. All names must be canonical.
func IsSecretHeader(name string, ofSender []string) bool {
	return slices.Contains(secretHeaders, name) || slices.Contains(ofSender, name)
}

// AddHeadersTo adds the request's headers, except the secret ones, to the given map and returns it.
// The values are redacted and in UTF-8. The request's headers are not modified, but the map may
// share unchanged values with them. ofSender holds the headers that contain the sender's secret.
func (r *Redactor) AddHeadersTo(into map[string][]string, ofSender []string) map[string][]string {
	for name, values := range r.request.Header { // names are ASCII: net/http rejects others
		if !IsSecretHeader(name, ofSender) {
			into[name] = r.redactHeaderValues(values)
		}
	}
	if host := r.request.Host; host != "" {
		// net/http removes Host from the headers.
		into["Host"] = []string{r.RedactHeaderValue(host)}
	}
	return into
}

// RedactHeaderValue returns the value of a header, redacted and as UTF-8.
func (r *Redactor) RedactHeaderValue(value string) string {
	return r.RedactText(HeaderToUTF8(value))
}

// redactHeaderValues returns the redacted values of a header. If none of them changes, it returns
// values itself instead of a copy.
func (r *Redactor) redactHeaderValues(values []string) []string {
	for i, value := range values {
		clean := r.RedactHeaderValue(value)
		if clean == value {
			continue
		}
		cleaned := slices.Clone(values)
		cleaned[i] = clean
		for j := i + 1; j < len(values); j++ {
			cleaned[j] = r.RedactHeaderValue(values[j])
		}
		return cleaned
	}
	return values
}
