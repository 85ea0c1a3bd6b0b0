package sender

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // what Twilio uses
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net"
	"net/url"
	"slices"
	"strings"
)

// bodyHashParam is the URL parameter that contains the hash of a body that is not a form.
const bodyHashParam = "bodySHA256"

// twilioSignatures returns the signatures that a request from Twilio may have. Twilio signs the
// URL, with or without its port, and for a form also every name with its values, sorted. For other
// bodies, the URL contains the hash of the body. If the request cannot be from Twilio,
// twilioSignatures returns nil.
func twilioSignatures(secret []byte, r *Request) [][]byte {
	var tail []byte
	if claimed := r.signedURLParam(bodyHashParam); claimed != "" {
		sum := sha256.Sum256(r.Body)
		given, err := hex.DecodeString(claimed)
		if err != nil || subtle.ConstantTimeCompare(sum[:], given) != 1 {
			return nil
		}
	} else {
		f := parseURLEncodedForm(string(r.Body))
		if !f.fullyParsed && len(r.Body) > 0 { // a pair that cannot be parsed is not signed
			return nil
		}
		tail = joinSortedFields(f.fields)
	}
	var sums [][]byte
	for _, u := range urlsWithAndWithoutPort(r.URL) {
		mac := hmac.New(sha1.New, secret)
		_, _ = mac.Write([]byte(u)) // a hash never fails
		_, _ = mac.Write(tail)
		sums = append(sums, mac.Sum(nil))
	}
	return sums
}

// signedURLParam returns the first value of a parameter of the signed URL, or "" if there is none.
func (r *Request) signedURLParam(name string) string {
	_, query, _ := strings.Cut(r.URL, "?")
	for _, f := range parseURLEncodedForm(query).fields {
		if f.name == name {
			return f.value
		}
	}
	return ""
}

// joinSortedFields concatenates the fields of a form, sorted by name and then by value, without
// duplicates. Each field is its name directly followed by its value.
func joinSortedFields(fields []formField) []byte {
	fields = slices.Clone(fields)
	slices.SortFunc(fields, func(a, b formField) int {
		if c := strings.Compare(a.name, b.name); c != 0 {
			return c
		}
		return strings.Compare(a.value, b.value)
	})
	var text bytes.Buffer
	for _, f := range slices.Compact(fields) {
		text.WriteString(f.name)
		text.WriteString(f.value)
	}
	return text.Bytes()
}

// urlsWithAndWithoutPort returns the URL as given and one variant of it: without its port or, if it
// has none, with the default port of its scheme. If text is not a URL with a host, the function
// returns only text.
func urlsWithAndWithoutPort(text string) []string {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return []string{text}
	}
	rest, at := text, strings.Index(text, u.Host)
	if at < 0 {
		return []string{text}
	}
	before, after := text[:at], rest[at+len(u.Host):]
	host, port := u.Host, u.Port()
	switch {
	case port != "":
		return []string{text, before + strings.TrimSuffix(host, ":"+port) + after}
	case u.Scheme == "https":
		return []string{text, before + joinPort(host, "443") + after}
	default:
		return []string{text, before + joinPort(host, "80") + after}
	}
}

func joinPort(host, port string) string {
	if strings.HasPrefix(host, "[") {
		return host + ":" + port
	}
	return net.JoinHostPort(host, port)
}
