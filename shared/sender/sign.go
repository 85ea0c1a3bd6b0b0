package sender

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"maps"
	"strconv"
	"strings"
	"time"
)

// Only the executor and tests sign requests. Signing is in this package because it is the inverse
// of verifying, and uses the same unexported keys, methods and sources that Compile makes from a
// preset. A separate package would need all of them exported. An ingress, which only verifies,
// therefore links a little code that it does not call. The same applies to SetDeliveryID.

// Errors that Sign returns. Their texts are shown to operators who test a trigger.
var (
	// ErrPublicKeyOnly means that only the provider can sign, because hookstart has only its public
	// key.
	ErrPublicKeyOnly = errors.New("only the provider itself can sign its requests: hookstart has " +
		"just its public key")
	// ErrNoSecret means that the sender has no unexpired secret.
	ErrNoSecret = errors.New("the sender has no secret that works")
	// ErrNoURL means that the signature covers the URL, but no public URL is configured.
	ErrNoURL = errors.New("the sender signs the URL, and no public URL is configured")
	// ErrUnsupportedBody means that the sender signs only bodies in a certain format, and this body
	// is not in that format.
	ErrUnsupportedBody = errors.New(
		"the signature of this sender depends on the form of the body, and this " +
			"body has another one",
	)
)

// SignedRequest is a request as the sender would send it.
type SignedRequest struct {
	Header map[string][]string // all headers, including those of the signature
	Query  string              // as sent; for Twilio, with the hash of a body that is not a form
	Body   []byte              // the given body, or one with the signature in it
}

// Sign signs a request as the sender would, with its newest secret, to test a trigger. Verify
// accepts the result if it is called with the same now. If the preset does not verify requests,
// Sign changes nothing.
func Sign(c Config, r Request, now time.Time) (SignedRequest, error) {
	s, err := Compile(c)
	if err != nil {
		return SignedRequest{}, err
	}
	return s.Sign(r, now)
}

// Sign is like the function Sign, for a sender that is already compiled.
func (s *Sender) Sign(r Request, now time.Time) (SignedRequest, error) {
	why := ErrNoSecret
	if !s.Verifies() {
		why = nil
	}
	for i := range s.keys {
		k := &s.keys[i]
		if !k.isValid(now) {
			continue
		}
		try := r.mutableCopy()
		if why = s.methods[k.methodIndex].sign(&try, k, now); why == nil &&
			!s.Verify(&try, now).OK() {
			why = ErrUnsupportedBody
		}
		if why == nil {
			r = try
			break
		}
	}
	return SignedRequest{Header: r.Header, Query: r.Query, Body: r.Body}, why
}

// mutableCopy returns a copy of a request. Its headers can be modified, and its cache is empty.
func (r *Request) mutableCopy() Request {
	c := Request{
		Method: r.Method,
		Header: maps.Clone(r.Header),
		Host:   r.Host,
		Query:  r.Query,
		URL:    r.URL,
		Body:   r.Body,
	}
	if c.Header == nil {
		c.Header = map[string][]string{}
	}
	return c
}

// sign adds a signature to a request, in the form that the method verifies. If the request lacks
// the time or another value that is part of the signed message, sign adds that first.
func (m *method) sign(r *Request, k *verificationKey, now time.Time) error {
	if m.signsURL() && r.URL == "" {
		return ErrNoURL
	}
	switch m.scheme {
	case schemeEd25519, schemeECDSA:
		return ErrPublicKeyOnly
	case schemeStatic:
		return m.signature.set(r, m.spec.Prefix+string(k.bytes))
	case schemeBasic:
		return m.signature.set(r,
			"Basic "+base64.StdEncoding.EncodeToString([]byte(m.user+":"+string(k.bytes))))
	case schemeTwilio:
		r.addBodyHashParam()
	}
	timeText := strconv.FormatInt(now.Unix(), 10)
	if m.timeUnit == "ms" {
		timeText = strconv.FormatInt(now.UnixMilli(), 10)
	}
	if m.timeUnit != "" && m.time.kind != sourceSignaturePart {
		if err := m.time.set(r, timeText); err != nil {
			return err
		}
	}
	for i := range m.message {
		if p := &m.message[i]; p.kind == partSource && p.source.value(r) == "" {
			if err := p.source.set(r, "msg_"+rand.Text()); err != nil {
				return err
			}
		}
	}
	for _, c := range m.when { // set headers that must have a fixed value
		if c.value != "" && c.value != "*" && c.source.kind == sourceHeader {
			r.Header[c.source.name] = []string{c.value}
		}
	}
	sum, hashName := m.signatureAndHash(k, r, timeText)
	return m.signature.set(r, m.formatSignature(sum, hashName, timeText))
}

// signatureAndHash returns the signature that the method accepts for r, and the name of the hash
// that it uses. For Twilio, hashName is "".
func (m *method) signatureAndHash(
	k *verificationKey, r *Request, timeText string,
) (sum []byte, hashName string) {
	if m.scheme == schemeTwilio {
		if sums := twilioSignatures(k.bytes, r); len(sums) > 0 {
			return sums[0], ""
		}
		return nil, ""
	}
	hashName = m.spec.Hash
	if hashName == hashNamedInSignature {
		hashName = "sha256"
	}
	return m.computeSignature(hashName, k, r, timeText), hashName
}

// formatSignature returns a signature in the form in which the provider sends it.
func (m *method) formatSignature(sum []byte, hashName, timeText string) string {
	text := hex.EncodeToString(sum)
	if m.spec.Encoding == "base64" {
		text = base64.StdEncoding.EncodeToString(sum)
	}
	if m.spec.Hash == hashNamedInSignature {
		text = hashName + "=" + text
	}
	text = m.spec.Prefix + text
	if s := m.spec.Split; s != nil && s.NameSeparator != "" {
		text = s.SignatureName + s.NameSeparator + text
		if m.time.kind == sourceSignaturePart && m.timeUnit != "" {
			text = m.time.name + s.NameSeparator + timeText + s.Separator + text
		}
	}
	return text
}

// addBodyHashParam adds the SHA-256 hash of the body to the URL as a query parameter, as Twilio
// does, unless the body is a form.
func (r *Request) addBodyHashParam() {
	if mediaType, _, _ := strings.Cut(r.header("Content-Type"),
		";"); strings.EqualFold(strings.TrimSpace(mediaType), urlEncodedFormType) {
		return
	}
	sum := sha256.Sum256(r.Body)
	separator := ""
	if r.Query != "" {
		separator = "&"
	}
	added := separator + bodyHashParam + "=" + hex.EncodeToString(sum[:])
	if r.Query == "" {
		r.URL += "?"
	}
	r.Query, r.URL = r.Query+added, r.URL+added
}
