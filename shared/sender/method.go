package sender

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // what Twilio, Vercel and Intercom use; HMAC-SHA1 is not broken
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"strconv"
	"strings"
	"time"

	"github.com/hookstart/hookstart/shared/webhook"
)

// The constants scheme… are the verification schemes. The constants generalPreset… name the presets
// whose verification method is built from the Config's settings instead of a table.
// hashNamedInSignature is the value of methodSpec.Hash if each signature names its own hash.
const (
	schemeStatic         = "static"     // the signature is the secret
	schemeBasic          = "basic"      // basic authentication
	schemeHMAC           = "hmac"       //
	schemeDigest         = "digest"     // a hash of a message that contains the secret
	schemeEd25519        = "ed25519"    //
	schemeECDSA          = "ecdsa-p256" //
	schemeTwilio         = "twilio"     // HMAC of the URL and the sorted fields of a form
	generalPresetHMAC    = schemeHMAC   // a preset whose method is built from its settings
	generalPresetHeader  = "header"     //
	hashNamedInSignature = "named"      // the signature names its hash: sha256=…
)

// methodSpec is one verification method in the built-in table.
type methodSpec struct {
	Scheme    string         `json:"scheme"`
	Hash      string         `json:"hash"`      // sha1, sha256, sha512, named
	Signature string         `json:"signature"` // the source of the signature
	Split     *itemSplitSpec `json:"split"`     // nil means that the value is one signature
	Prefix    string         `json:"prefix"`    // required prefix of each signature
	Encoding  string         `json:"encoding"`  // hex, base64
	// KeyFormat is the form of the secret: text (the default), base64, hex, whsec, whpk or spki.
	KeyFormat       string    `json:"key"`
	SecretPrefix    string    `json:"secretPrefix"`
	NotSecretPrefix string    `json:"notSecretPrefix"`
	Message         string    `json:"message"` // {body} by default
	Time            *timeSpec `json:"time"`
	RefuseEmptyBody bool      `json:"refuseEmptyBody"`
	// AlsoDecodedURL means that the provider may have decoded some characters of the URL before it
	// signed the URL, so that the URL as received and its decoded form are both tried.
	AlsoDecodedURL bool `json:"alsoDecodedURL"`
	// DeliveryIDSources holds the sources of delivery IDs that this signature covers, in order.
	DeliveryIDSources []string          `json:"delivery"`
	When              map[string]string `json:"when"`    // conditions on the request
	RequiredSettings  map[string]string `json:"setting"` // values that settings must have

	idSource      *valueSource // the source of {id} in the message
	listSeparator string       // list separator of the hmac preset
}

// itemSplitSpec describes how the value of a signature header, such as "t=1,v1=abc", is split into
// items. Items may have names: here, t and v1.
type itemSplitSpec struct {
	// Separator separates the items. "" means that the value is one item.
	Separator string `json:"by"`
	// NameSeparator separates the name of an item from its value. "" means that the items have no
	// names, and that each is a signature.
	NameSeparator string `json:"assign"`
	SignatureName string `json:"take"` // the name of the items that are signatures
}

// timeSpec describes where a request contains the time when it was signed.
type timeSpec struct {
	Source         string `json:"from"`     // a source, or signature:NAME for an item
	Unit           string `json:"unit"`     // s, ms, auto
	UnsignedReason string `json:"unsigned"` // why a time is checked although it is not signed
}

// method is a methodSpec that is compiled for the settings of one sender.
type method struct {
	spec      *methodSpec
	scheme    string
	signature valueSource
	message   messageTemplate
	time      valueSource
	timeUnit  string // "" means that the request contains no time
	when      []condition
	user      string // user name for basic authentication
}

func (m *methodSpec) appliesTo(settings map[string]string) bool {
	for name, value := range m.RequiredSettings {
		if settings[name] != value {
			return false
		}
	}
	return true
}

// compile returns the compiled method. It returns an error if m has unknown or contradictory
// values. It also returns an error if m checks a time that is not part of the signed message,
// unless m states a reason for this (timeSpec.UnsignedReason).
func (m *methodSpec) compile(settings map[string]string) (method, error) {
	c := method{spec: m, scheme: m.Scheme, user: settings["user"]}
	var err error
	if c.signature, err = parseSource(m.Signature, true); err != nil {
		return c, fmt.Errorf("signature: %w", err)
	}
	if c.when, err = compileConditions(m.When); err != nil {
		return c, err
	}
	message := m.Message
	if message == "" {
		message = "{body}"
	}
	if c.message, err = parseTemplate(message, m.idSource == nil && m.listSeparator == "",
		m.idSource); err != nil {
		return c, err
	}
	if err := m.compileTimestampSource(&c); err != nil {
		return c, err
	}
	return c, m.check()
}

func (m *methodSpec) compileTimestampSource(c *method) error {
	if m.Time == nil {
		if c.message.hasPart(partTime) {
			return errors.New("the message has {time}, so the time's source (timeHeader) is " +
				"required")
		}
		return nil
	}
	var err error
	if c.time, err = parseSource(m.Time.Source, true); err != nil {
		return err
	}
	if c.time.kind == sourceSignaturePart && m.Split == nil {
		return errors.New("a time in the signature needs split")
	}
	switch m.Time.Unit {
	case "s", "ms", "auto":
		c.timeUnit = m.Time.Unit
	default:
		return fmt.Errorf("unknown unit of time %q", m.Time.Unit)
	}
	if !c.message.hasPart(partTime) && m.Time.UnsignedReason == "" {
		return errors.New("the time is checked but not signed: put {time} into the message")
	}
	return nil
}

func (m *methodSpec) check() error {
	needsHash, needsEncoding := false, true
	switch m.Scheme {
	case schemeStatic, schemeBasic:
		needsEncoding = false
	case schemeHMAC, schemeDigest, schemeECDSA:
		needsHash = true
	case schemeEd25519, schemeTwilio:
	default:
		return fmt.Errorf("unknown scheme %q", m.Scheme)
	}
	if known := hashConstructor(m.Hash) != nil ||
		(m.Hash == hashNamedInSignature && m.Scheme == schemeHMAC); known != needsHash {
		return fmt.Errorf("scheme %s with hash %q", m.Scheme, m.Hash)
	}
	if known := m.Encoding == "hex" || m.Encoding == "base64"; known != needsEncoding {
		return fmt.Errorf("scheme %s with encoding %q", m.Scheme, m.Encoding)
	}
	switch m.KeyFormat {
	case "", "text", "base64", "hex", "whsec", "whpk", "spki":
		return nil
	default:
		return fmt.Errorf("unknown kind of key %q", m.KeyFormat)
	}
}

func (m *method) signsURL() bool { return m.message.hasPart(partURL) || m.scheme == schemeTwilio }

// hashConstructor returns the constructor of the hash with the given name, or nil if the name is
// unknown.
func hashConstructor(name string) func() hash.Hash {
	switch name {
	case "sha1":
		return sha1.New
	case "sha256":
		return sha256.New
	case "sha512":
		return sha512.New
	default:
		return nil
	}
}

// signatureCandidate is a signature in a request that has not been checked yet.
type signatureCandidate struct {
	text     string
	raw      []byte // decoded
	hashName string
}

// maxPublicKeySignatures is the maximum number of signatures of one request that are checked with a
// public key. Further ones are ignored, because each check is slow.
const maxPublicKeySignatures = 16

// ambiguousTime takes the place of the time if a signature header contains two different times,
// because it is unknown which of them was signed. Such a request is refused.
const ambiguousTime = "two times"

// appendSignatureCandidates decodes the signatures in a value, appends them to found and returns
// the result. It omits those that cannot be decoded. It also returns the time, if the value
// contains one.
func (m *method) appendSignatureCandidates(
	found []signatureCandidate,
	value string,
) (all []signatureCandidate, timeText string) {
	items := []string{value}
	if separator := m.spec.itemSeparator(); separator != "" {
		items = strings.Split(value, separator)
	}
	for _, item := range items {
		item = strings.TrimSpace(item)
		if s := m.spec.Split; s != nil && s.NameSeparator != "" {
			name, assigned, _ := strings.Cut(item, s.NameSeparator)
			switch {
			case m.time.kind != sourceSignaturePart || name != m.time.name || assigned == timeText:
			case timeText == "":
				timeText = assigned
			default:
				timeText = ambiguousTime
			}
			if name != s.SignatureName {
				continue
			}
			item = assigned
		}
		if c, ok := m.decodeSignature(item); ok {
			found = append(found, c)
		}
	}
	return found, timeText
}

func (m *methodSpec) itemSeparator() string {
	if m.Split != nil {
		return m.Split.Separator
	}
	return m.listSeparator
}

func (m *method) decodeSignature(item string) (signatureCandidate, bool) {
	prefix := m.spec.Prefix
	if len(item) < len(prefix) {
		return signatureCandidate{}, false
	}
	same := item[:len(prefix)] == prefix
	if m.scheme == schemeStatic { // a prefix such as Bearer may be in any case
		same = strings.EqualFold(item[:len(prefix)], prefix)
	}
	if !same {
		return signatureCandidate{}, false
	}
	c := signatureCandidate{text: item[len(prefix):], hashName: m.spec.Hash}
	if m.scheme == schemeStatic && prefix != "" { // Bearer may be followed by several spaces
		c.text = strings.TrimLeft(c.text, " ")
	}
	if c.hashName == hashNamedInSignature {
		name, text, _ := strings.Cut(c.text, "=")
		if hashConstructor(name) == nil {
			return signatureCandidate{}, false
		}
		c.hashName, c.text = name, text
	}
	if m.spec.Encoding == "" {
		return c, c.text != ""
	}
	raw, err := decodeText(m.spec.Encoding, c.text)
	c.raw = raw
	return c, err == nil && len(raw) > 0
}

// decodeText decodes hex in either case, or base64 with padding and without line breaks.
func decodeText(encoding, text string) ([]byte, error) {
	if encoding == "hex" {
		return hex.DecodeString(text)
	}
	if strings.ContainsAny(text, "\r\n") { // encoding/base64 would skip them
		return nil, errors.New("a line break")
	}
	return base64.StdEncoding.Strict().DecodeString(text)
}

// Verify determines whether a request is from the sender. It reports a signature that is both wrong
// and too old as wrong, so that a caller without the secret cannot find out the allowed age or this
// machine's clock by trying times.
func (s *Sender) Verify(r *Request, now time.Time) Verdict {
	if !s.Verifies() {
		return Verdict{}
	}
	if s.countValidKeys(now) == 0 {
		return Verdict{Code: webhook.CodeSignatureMissing, Reason: "no secret is set"}
	}
	closest := Verdict{Code: webhook.CodeSignatureMissing, Reason: "the request has no signature"}
	distance := 3
	for i := range s.methods {
		v := s.verifyWithMethod(i, r, now)
		if v.OK() {
			return v
		}
		if d := refusalRank(v); d < distance {
			closest, distance = v, d
		}
	}
	if closest.Code != webhook.CodeSignatureExpired {
		closest.Reason += s.likelySenderHint(r)
	}
	return closest
}

// refusalRank ranks a refusal by how close the request came to a valid signature: from 0, the
// closest, to 3 for a method that does not apply to the request. Verify returns the refusal with
// the lowest rank.
func refusalRank(v Verdict) int {
	switch {
	case v.Reason == "": // the method does not apply to the request
		return 3
	case v.Code == webhook.CodeSignatureExpired:
		return 0
	case v.Code == webhook.CodeSignatureInvalid:
		return 1
	default:
		return 2
	}
}

// countValidKeys returns the number of keys that have not expired.
func (s *Sender) countValidKeys(now time.Time) int {
	n := 0
	for i := range s.keys {
		if s.keys[i].isValid(now) {
			n++
		}
	}
	return n
}

// verifyWithMethod verifies a request with s.methods[i]. A refusal without a Reason means that the
// method does not apply to the request.
func (s *Sender) verifyWithMethod(i int, r *Request, now time.Time) Verdict {
	m := &s.methods[i]
	if !allHold(m.when, r) {
		return Verdict{Code: webhook.CodeSignatureMissing}
	}
	values := m.signature.values(r)
	if len(values) == 0 {
		return Verdict{
			Code:   webhook.CodeSignatureMissing,
			Reason: "there is no " + m.signature.String(),
		}
	}
	if absent := m.message.firstMissingPart(r); absent != "" {
		return Verdict{Code: webhook.CodeSignatureMissing, Reason: "there is no " + absent}
	}
	if m.signsURL() && r.URL == "" {
		return Verdict{
			Code:   webhook.CodeSignatureInvalid,
			Reason: "the URL is signed, but the ingress has no --public-url",
		}
	}
	if m.scheme == schemeStatic && m.signature.kind == sourceJSONPointer {
		return s.compareBodySecrets(i, values, now)
	}
	var found []signatureCandidate
	timeText := ""
	for _, value := range values {
		var t string
		if found, t = m.appendSignatureCandidates(found, value); timeText == "" {
			timeText = t
		}
	}
	if m.timeUnit != "" && m.time.kind != sourceSignaturePart {
		timeText = m.time.value(r)
	}
	if m.timeUnit != "" && timeText == "" {
		return Verdict{
			Code:   webhook.CodeSignatureMissing,
			Reason: "there is no time in " + m.time.String(),
		}
	}
	if timeText == ambiguousTime {
		return Verdict{
			Code:   webhook.CodeSignatureInvalid,
			Reason: m.signature.String() + " has two times",
		}
	}
	if len(found) == 0 {
		return Verdict{
			Code:   webhook.CodeSignatureInvalid,
			Reason: m.signature.String() + " holds no signature of the right form",
		}
	}
	if m.message.hasPart(partPayload) {
		if beside := r.describeUnsignedFields(); beside != "" {
			return Verdict{Code: webhook.CodeSignatureInvalid, Reason: beside}
		}
	}
	if m.scheme == schemeDigest && len(r.Body) > 0 && isForgeableBody(r.Body) {
		return Verdict{
			Code:   webhook.CodeSignatureInvalid,
			Reason: "the body is no JSON object or array, or has a NUL in it",
		}
	}
	if m.spec.RefuseEmptyBody && len(r.Body) == 0 {
		return Verdict{Code: webhook.CodeSignatureInvalid, Reason: "the body is empty"}
	}
	return s.compareSignatures(i, r, found, timeText, now)
}

// isForgeableBody reports whether a body, which must not be empty, could have been forged by an
// attacker who knows an earlier request and its digest, but not the secret. There are two such
// forgeries, because the digest is a plain hash of the secret and the message:
//
// The digest can be extended to a longer message. The forged body then contains the padding of the
// hash, which always includes a NUL.
//
// The version of the signature is not signed, so the signed message of one version can be sent as
// the body of another. Such a body begins with the HTTP method of the earlier request, and
// therefore not with { or [.
func isForgeableBody(body []byte) bool {
	return (body[0] != '{' && body[0] != '[') || bytes.IndexByte(body, 0) >= 0
}

// compareSignatures compares the signatures of a request with every valid key of s.methods[i], and
// then checks the time.
func (s *Sender) compareSignatures(
	i int, r *Request, found []signatureCandidate, timeText string, now time.Time,
) Verdict {
	m, match := &s.methods[i], -1
	for n := range s.keys {
		k := &s.keys[n]
		if k.methodIndex != i || !k.isValid(now) {
			continue
		}
		if m.anySignatureMatches(k, r, found, timeText) && match < 0 {
			match = n
		}
	}
	if match < 0 {
		return Verdict{
			Code:   webhook.CodeSignatureInvalid,
			Reason: "no signature matches any of the secrets",
		}
	}
	if refused := m.checkTime(timeText, now, s.tolerance); !refused.OK() {
		return refused
	}
	return Verdict{SecretID: s.keys[match].id, methodNumber: i + 1}
}

// Every time from tenDigitTimesStart (in 2001) until tenDigitTimesEnd (in 2286) has ten digits in
// Unix seconds, and thirteen digits in Unix milliseconds.
var (
	tenDigitTimesStart = time.Unix(1_000_000_000, 0)
	tenDigitTimesEnd   = time.Unix(10_000_000_000, 0)
)

// checkTime refuses a time that is too far from now. If the tolerance is 0, it accepts any time or,
// if the unit is auto, any text. But unless the message separates the time from what is signed next
// to it, such as the delivery ID, it still accepts only a time from tenDigitTimesStart until
// tenDigitTimesEnd: with another number of digits, an attacker could move digits between the two.
func (m *method) checkTime(text string, now time.Time, tolerance time.Duration) Verdict {
	if m.timeUnit == "" || (m.timeUnit == "auto" &&
		tolerance == 0) { // a header that an operator chose may hold any text
		return Verdict{}
	}
	at, ok := parseTime(text, m.timeUnit)
	if !ok || (tolerance == 0 && !m.message.separatesTimeFromBody() &&
		(at.Before(tenDigitTimesStart) || !at.Before(tenDigitTimesEnd))) {
		return Verdict{Code: webhook.CodeSignatureInvalid, Reason: "the time is no number, or " +
			"has not as many digits as a time has"}
	}
	if age := now.Sub(at); tolerance > 0 && (age > tolerance || age < -tolerance) {
		return Verdict{
			Code: webhook.CodeSignatureExpired,
			Reason: fmt.Sprintf("it was signed %d s before now, and %d s either way are allowed",
				int64(age.Seconds()), int64(tolerance.Seconds())),
		}
	}
	return Verdict{}
}

// compareBodySecrets verifies a request whose body contains the secret itself, possibly several
// times. values holds these secrets; each must equal a valid key of s.methods[i].
func (s *Sender) compareBodySecrets(i int, values []string, now time.Time) Verdict {
	id, all := "", 1
	for _, value := range values {
		right := 0
		for n := range s.keys {
			if k := &s.keys[n]; k.methodIndex == i && k.isValid(now) {
				if same := constantTimeEqual(value, string(k.bytes)); same == 1 {
					right, id = 1, k.id
				}
			}
		}
		all &= right
	}
	if all == 0 {
		return Verdict{
			Code:   webhook.CodeSignatureInvalid,
			Reason: s.methods[i].signature.String() + " is not the secret everywhere",
		}
	}
	return Verdict{SecretID: id, methodNumber: i + 1}
}

// anySignatureMatches reports whether at least one of the signatures in found is valid for the key
// k. It continues after a match, so that its duration does not reveal which signature matched.
func (m *method) anySignatureMatches(k *verificationKey, r *Request, found []signatureCandidate,
	timeText string,
) bool {
	right := 0
	switch m.scheme {
	case schemeStatic:
		for _, c := range found {
			right |= constantTimeEqual(c.text, string(k.bytes))
		}
	case schemeBasic:
		for _, c := range found {
			right |= matchesBasicAuth(c.text, m.user, string(k.bytes))
		}
	case schemeHMAC, schemeDigest:
		for _, view := range m.requestVariants(r) {
			sums := map[string][]byte{}
			for _, c := range found {
				if sums[c.hashName] == nil {
					sums[c.hashName] = m.computeSignature(c.hashName, k, view, timeText)
				}
				right |= subtle.ConstantTimeCompare(sums[c.hashName], c.raw)
			}
		}
	case schemeTwilio:
		for _, sum := range twilioSignatures(k.bytes, r) {
			for _, c := range found {
				right |= subtle.ConstantTimeCompare(sum, c.raw)
			}
		}
	case schemeEd25519, schemeECDSA:
		for _, c := range found[:min(len(found), maxPublicKeySignatures)] {
			if m.verifyPublicKeySignature(k, r, c.raw, timeText) {
				right = 1
			}
		}
	}
	return right == 1
}

// hubSpotURLDecoder decodes the characters of a URL that HubSpot decodes before it signs the URL
// with version 3.
var hubSpotURLDecoder = strings.NewReplacer(
	"%3A", ":", "%2F", "/", "%3F", "?", "%40", "@", "%21", "!", "%24", "$", "%27", "'", "%28", "(",
	"%29", ")", "%2A", "*", "%2C", ",", "%3B", ";", "%3a", ":", "%2f", "/", "%3f", "?", "%2a", "*",
	"%2c", ",", "%3b", ";",
)

// requestVariants returns the versions of a request with which its signature must be compared: the
// request itself and, if the provider may have decoded some characters of the URL before signing, a
// copy with those characters decoded.
func (m *method) requestVariants(r *Request) []*Request {
	if !m.spec.AlsoDecodedURL {
		return []*Request{r}
	}
	decoded := r.mutableCopy()
	decoded.URL = hubSpotURLDecoder.Replace(r.URL)
	return []*Request{r, &decoded}
}

// computeSignature returns the HMAC or the digest that a request signed with the key must have.
// timeText is the time as sent.
func (m *method) computeSignature(hashName string, k *verificationKey, r *Request,
	timeText string,
) []byte {
	h := hashConstructor(hashName)()
	if m.scheme == schemeHMAC {
		h = hmac.New(hashConstructor(hashName), k.bytes)
	}
	// Writing to a hash never fails.
	m.message.write(func(b []byte) { _, _ = h.Write(b) }, r, timeText, k.bytes)
	return h.Sum(nil)
}

func (m *method) verifyPublicKeySignature(
	k *verificationKey, r *Request, signature []byte, timeText string,
) bool {
	var message bytes.Buffer
	m.message.write(func(b []byte) { message.Write(b) }, r, timeText, nil)
	if m.scheme == schemeEd25519 {
		return len(signature) == ed25519.SignatureSize &&
			ed25519.Verify(k.bytes, message.Bytes(), signature)
	}
	h := hashConstructor(m.spec.Hash)()
	_, _ = h.Write(message.Bytes())
	return ecdsa.VerifyASN1(k.ecdsaKey, h.Sum(nil), signature)
}

// constantTimeEqual compares two strings in constant time. It returns 1 if they are equal,
// otherwise 0.
func constantTimeEqual(a, b string) int {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:])
}

// matchesBasicAuth returns 1 if an Authorization header contains the user and the password,
// otherwise 0.
func matchesBasicAuth(header, user, password string) int {
	scheme, encoded, _ := strings.Cut(header, " ")
	text, err := base64.StdEncoding.DecodeString(strings.TrimSpace(encoded))
	if err != nil || !strings.EqualFold(scheme, "Basic") {
		return 0
	}
	givenUser, givenPassword, _ := strings.Cut(string(text), ":")
	return constantTimeEqual(givenUser, user) & constantTimeEqual(givenPassword, password)
}

// parseTime parses digits as seconds or milliseconds since 1970. The unit is s, ms or auto; with
// auto, a large number counts as milliseconds. The result is false if text is not such a time.
// Leading zeros are refused, because the providers' libraries drop them before they compute the
// signature.
func parseTime(text, unit string) (time.Time, bool) {
	if text == "" || len(text) > 15 || (len(text) > 1 && text[0] == '0') ||
		strings.Trim(text, "0123456789") != "" {
		return time.Time{}, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, false
	}
	const firstMilliseconds = 100_000_000_000 // the year 5138 in seconds, 1973 in milliseconds
	if unit == "ms" || (unit == "auto" && n >= firstMilliseconds) {
		return time.UnixMilli(n), true
	}
	return time.Unix(n, 0), true
}
