package sender

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"strconv"
	"strings"
	"time"
)

// Errors of Sign.
var (
	// ErrPublicKey means that only the provider can sign: hookstart has its public key.
	ErrPublicKey = errors.New("only the provider itself can sign its requests: hookstart has just its public key")
	// ErrNoSecret means that there is no secret that works now.
	ErrNoSecret = errors.New("the sender has no secret that works")
	// ErrNoURL means that the URL is signed and not known.
	ErrNoURL = errors.New("the sender signs the URL, and no public URL is configured")
	// ErrSignedBody means that the signature belongs into the body, and that the body is no JSON object.
	ErrSignedBody = errors.New("the signature of this sender is in the body, which has to be JSON of its form")
)

// Signed is a request as the sender would send it.
type Signed struct {
	Header map[string][]string // all of the request's, and those that sign it
	Query  string              // raw; Twilio adds the body's hash to it when the body is no form
	Body   []byte              // changed where the signature is in the body
}

// Sign signs a request as the sender would, with its newest secret: to try a trigger out. Of a
// preset that verifies nothing it changes nothing.
func Sign(c Config, r Request, now time.Time) (Signed, error) {
	s, err := Compile(c)
	if err != nil {
		return Signed{}, err
	}
	return s.Sign(r, now)
}

// Sign signs a request: see the function.
func (s *Sender) Sign(r Request, now time.Time) (Signed, error) {
	signed := Signed{Header: map[string][]string{}, Query: r.Query, Body: r.Body}
	maps.Copy(signed.Header, r.Header)
	if !s.Verifies() {
		return signed, nil
	}
	err := ErrNoSecret
	for i := range s.keys {
		k := &s.keys[i]
		if !k.works(now) {
			continue
		}
		m := &s.methods[k.method]
		if m.scheme == schemeEd25519 || m.scheme == schemeECDSA {
			err = ErrPublicKey
			continue
		}
		r.Header, r.document, r.form = signed.Header, nil, nil
		if m.scheme == schemeTwilio {
			r.addBodyHash()
		}
		err := m.sign(&r, k, now)
		signed.Body, signed.Query = r.Body, r.Query
		return signed, err
	}
	return signed, err
}

// sign puts into a request what the method looks for.
func (m *method) sign(r *Request, k *key, now time.Time) error {
	if (m.message.hasURL() || m.scheme == schemeTwilio) && r.URL == "" {
		return ErrNoURL
	}
	if m.scheme == schemeStatic {
		return m.signature.put(r, m.spec.Prefix+string(k.bytes))
	}
	if m.scheme == schemeBasic {
		return m.signature.put(r, "Basic "+base64.StdEncoding.EncodeToString([]byte(m.user+":"+string(k.bytes))))
	}
	timeText := strconv.FormatInt(now.Unix(), 10)
	if m.unit == "ms" {
		timeText = strconv.FormatInt(now.UnixMilli(), 10)
	}
	if m.unit != "" && m.time.kind != fromSignature {
		if err := m.time.put(r, timeText); err != nil {
			return err
		}
	}
	for i := range m.message {
		if p := &m.message[i]; p.kind == partSource && p.source.value(r) == "" {
			if err := p.source.put(r, "msg_"+rand.Text()); err != nil {
				return err
			}
		}
	}
	for _, c := range m.when { // such as the version of the signature
		if c.value != "" && c.value != "*" && c.source.kind == fromHeader {
			r.Header[c.source.name] = []string{c.value}
		}
	}
	sum, hashName := m.expected(k, r, timeText)
	return m.signature.put(r, m.written(sum, hashName, timeText))
}

// expected is the signature that the method would accept.
func (m *method) expected(k *key, r *Request, timeText string) (sum []byte, hashName string) {
	if m.scheme == schemeTwilio {
		if sums := twilioSums(k.bytes, r); len(sums) > 0 {
			return sums[0], ""
		}
		return nil, ""
	}
	hashName = m.spec.Hash
	if hashName == hashNamed {
		hashName = "sha256"
	}
	return m.sum(hashName, k, r, timeText), hashName
}

// written is a signature in the form that the provider gives it.
func (m *method) written(sum []byte, hashName, timeText string) string {
	text := hex.EncodeToString(sum)
	if m.spec.Encoding == "base64" {
		text = base64.StdEncoding.EncodeToString(sum)
	}
	if m.spec.Hash == hashNamed {
		text = hashName + "=" + text
	}
	text = m.spec.Prefix + text
	if s := m.spec.Split; s != nil && s.Assign != "" {
		text = s.Take + s.Assign + text
		if m.time.kind == fromSignature && m.unit != "" {
			text = m.time.name + s.Assign + timeText + s.By + text
		}
	}
	return text
}

// addBodyHash adds the parameter that Twilio adds to the URL when the body is no form.
func (r *Request) addBodyHash() {
	if mediaType, _, _ := strings.Cut(r.header("Content-Type"), ";"); strings.EqualFold(strings.TrimSpace(mediaType), formType) {
		return
	}
	sum := sha256.Sum256(r.Body)
	separator := ""
	if r.Query != "" {
		separator = "&"
	}
	added := separator + "bodySHA256=" + hex.EncodeToString(sum[:])
	if r.Query == "" {
		r.URL += "?"
	}
	r.Query, r.URL = r.Query+added, r.URL+added
}

// put sets a value at a source.
func (s source) put(r *Request, value string) error {
	switch s.kind {
	case fromHeader:
		r.Header[s.name] = []string{value}
		return nil
	case fromPointer:
		decoder := json.NewDecoder(bytes.NewReader(r.Body))
		decoder.UseNumber()
		var document any
		if len(bytes.TrimSpace(r.Body)) == 0 {
			document = map[string]any{}
		} else if decoder.Decode(&document) != nil {
			return ErrSignedBody
		}
		if !putAt(document, s.pointer, value) {
			return ErrSignedBody
		}
		body, err := json.Marshal(document)
		if err != nil {
			return ErrSignedBody
		}
		r.Body, r.document, r.form = body, nil, nil
		return nil
	case fromForm, fromQuery, fromSignature:
	}
	return ErrSignedBody
}

// putAt sets a member, in every element where the pointer says so, and makes objects on its way.
func putAt(in any, pointer []string, value string) bool {
	object, is := in.(map[string]any)
	if !is {
		return false
	}
	name := pointer[0]
	if len(pointer) == 1 {
		object[name] = value
		return true
	}
	if pointer[1] == "*" {
		elements, _ := object[name].([]any)
		if len(elements) == 0 {
			elements = []any{map[string]any{}}
			object[name] = elements
		}
		for _, element := range elements {
			if len(pointer) < 3 || !putAt(element, pointer[2:], value) {
				return false
			}
		}
		return true
	}
	if object[name] == nil {
		object[name] = map[string]any{}
	}
	return putAt(object[name], pointer[1:], value)
}
