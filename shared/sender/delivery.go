package sender

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hookstart/hookstart/shared/execution"
)

// deliveryIDSource describes where a request contains its delivery ID: in one part of the request,
// or in several parts that are all required.
type deliveryIDSource struct {
	text         string // as written in the built-in table or the setting
	parts        []valueSource
	mustBeAbsent []valueSource // sources that must have no value
	inBody       bool          // whether a part of the ID is in the body
	// signedByMethod reports, for each of the sender's methods, whether the method's signature
	// covers the ID.
	signedByMethod []bool
}

// DeliveryID is a delivery ID from one of the sender's sources.
type DeliveryID struct {
	ID string // "" means that the request has none
	// Derived reports whether the ID comes from the body or is a hash. It counts as a different ID
	// from one with the same text that comes from a header: see execution.MarkDerivedID.
	Derived bool
	// Signed reports whether the verified signature covers the ID. It counts as a different ID from
	// an unsigned one with the same text: see execution.MarkSignedID.
	Signed bool
}

// parseDeliveryIDSource parses a source of a delivery ID. If builtIn is true, text is from the
// built-in table and may consist of several parts, joined by " + ". A part that begins with "!"
// must be absent from the request.
func parseDeliveryIDSource(text string, builtIn bool) (deliveryIDSource, error) {
	texts := []string{text}
	if builtIn {
		texts = strings.Split(text, " + ")
	}
	id := deliveryIDSource{text: text}
	for _, t := range texts {
		t, absent := strings.CutPrefix(t, "!")
		s, err := parseSource(t, builtIn)
		if err != nil {
			return id, err
		}
		if absent && builtIn {
			id.mustBeAbsent = append(id.mustBeAbsent, s)
			continue
		}
		id.parts = append(id.parts, s)
		id.inBody = id.inBody || s.kind == sourceJSONPointer || s.kind == sourceFormField
	}
	return id, nil
}

// maxDeliveryIDSources is the maximum number of places (headers, form fields, JSON pointers) that
// an operator may name as the sources of one sender's delivery IDs.
const maxDeliveryIDSources = 16

// DeliveryIDSources returns the sources of a sender's delivery IDs, in order and in the notation of
// the deliveryId setting. A signature covers the sources in signed, but not those in other. A
// source of the preset itself may consist of several parts, joined by " + "; a part that begins
// with "!" must be absent from the request. settings need not contain secret settings.
func DeliveryIDSources(
	preset string, settings map[string]string,
) (signed, other []string, err error) {
	e, err := findEntry(preset)
	if err != nil {
		return nil, nil, err
	}
	s := &Sender{entry: e}
	if err := s.compileMethods(e, e.withDefaults(settings)); err != nil {
		return nil, nil, err
	}
	if s.deliveryIDSources, err = e.compileDeliveryIDSources(settings, s.methods); err != nil {
		return nil, nil, err
	}
	for i := range s.deliveryIDSources {
		if slices.Contains(s.deliveryIDSources[i].signedByMethod, true) {
			signed = append(signed, s.deliveryIDSources[i].text)
		} else {
			other = append(other, s.deliveryIDSources[i].text)
		}
	}
	return signed, other, nil
}

// configuredDeliveryIDSources returns the sources of delivery IDs that an operator has set. If the
// operator has set none, it returns the entry's built-in sources, and builtIn is true.
func (e *presetEntry) configuredDeliveryIDSources(
	settings map[string]string,
) (texts []string, builtIn bool) {
	if set := settings[settingDeliveryID]; set != "" {
		texts = strings.Split(set, ",")
		for i := range texts {
			texts[i] = strings.TrimSpace(texts[i])
		}
		return texts, false
	}
	if header := settings["idHeader"]; header != "" { // a setting of the hmac preset
		return []string{"header:" + header}, false
	}
	return e.builtInDeliveryIDSources(), true
}

// builtInDeliveryIDSources returns the preset's sources of a delivery ID without duplicates: first
// the signed ones of its verification methods, and then its other sources.
func (e *presetEntry) builtInDeliveryIDSources() []string {
	var texts []string
	for i := range e.VerificationMethods {
		for _, text := range e.VerificationMethods[i].DeliveryIDSources {
			if !slices.Contains(texts, text) {
				texts = append(texts, text)
			}
		}
	}
	return append(texts, e.UnsignedDeliveryIDSources...)
}

// compileDeliveryIDSources compiles the sources of delivery IDs and determines which of them each
// method's signature covers.
func (e *presetEntry) compileDeliveryIDSources(
	settings map[string]string,
	methods []method,
) ([]deliveryIDSource, error) {
	texts, builtIn := e.configuredDeliveryIDSources(settings)
	if len(texts) > maxDeliveryIDSources {
		return nil, &ConfigError{"settings." + settingDeliveryID, "has too many sources"}
	}
	var sources []deliveryIDSource
	for _, text := range texts {
		id, err := parseDeliveryIDSource(text, builtIn)
		if err != nil {
			return nil, &ConfigError{"settings." + settingDeliveryID, err.Error()}
		}
		id.signedByMethod = make([]bool, len(methods))
		for i := range methods {
			id.signedByMethod[i] = methods[i].coversID(&id)
		}
		sources = append(sources, id)
	}
	return sources, nil
}

// DeliveryIDMayBeInBody reports whether the body may contain the delivery ID.
func (s *Sender) DeliveryIDMayBeInBody() bool {
	return slices.ContainsFunc(s.deliveryIDSources, func(id deliveryIDSource) bool {
		return id.inBody
	})
}

// SignsDeliveryID reports whether a signature may cover the delivery ID. If so, the delivery ID is
// known only once the request has been verified.
func (s *Sender) SignsDeliveryID() bool {
	return slices.ContainsFunc(s.deliveryIDSources, func(id deliveryIDSource) bool {
		return slices.Contains(id.signedByMethod, true)
	})
}

// SignedDeliveryID returns the request's delivery ID if the signature that verified the request
// covers it, and otherwise the zero value. If it returns an ID, the caller must not use any other
// part of the request as the delivery ID, because an attacker may have changed that part. To find
// the ID in a signed body, SignedDeliveryID ignores Content-Type, which is not signed.
func (s *Sender) SignedDeliveryID(r *Request, v Verdict) DeliveryID {
	if v.methodNumber == 0 || !v.OK() {
		return DeliveryID{}
	}
	var view *Request
	for i := range s.deliveryIDSources {
		id := &s.deliveryIDSources[i]
		if !id.signedByMethod[v.methodNumber-1] {
			continue
		}
		if view == nil {
			view = s.methods[v.methodNumber-1].signedView(r)
		}
		if text := id.find(view); text != "" {
			d := newDeliveryID(text, id.inBody)
			d.Signed = true
			return d
		}
	}
	return DeliveryID{}
}

// UnsignedDeliveryID returns the ID from the first source that contains one. It ignores sources
// that are covered by the verified signature: see SignedDeliveryID. An ID that is too long or not
// printable is hashed rather than refused, because the sender cannot choose another.
func (s *Sender) UnsignedDeliveryID(r *Request, v Verdict) DeliveryID {
	for i := range s.deliveryIDSources {
		id := &s.deliveryIDSources[i]
		if v.methodNumber > 0 && id.signedByMethod[v.methodNumber-1] {
			continue
		}
		if text := id.find(r); text != "" {
			return newDeliveryID(text, id.inBody)
		}
	}
	return DeliveryID{}
}

func newDeliveryID(text string, fromBody bool) DeliveryID {
	printable := utf8.ValidString(text) && !strings.ContainsFunc(text, func(c rune) bool {
		return c < ' ' || c == 0x7f
	})
	if printable && len(text) <= execution.MaxDeliveryIDBytes {
		return DeliveryID{ID: text, Derived: fromBody}
	}
	sum := sha256.Sum256([]byte(text))
	prefix := "sha256:"
	if !fromBody { // the same text in the body is a different ID
		prefix = "header-sha256:"
	}
	return DeliveryID{ID: prefix + hex.EncodeToString(sum[:]), Derived: true}
}

// find returns the ID at a source: its value, or the joined values of all its parts. It uses only
// the first non-empty value of a header, because signatures cover only that value, and because a
// proxy may repeat a header.
func (id *deliveryIDSource) find(r *Request) string {
	for _, s := range id.mustBeAbsent {
		if s.hasValue(r, true) {
			return ""
		}
	}
	var all []string
	for _, s := range id.parts {
		values := s.values(r)
		if s.kind == sourceHeader {
			values = values[:min(len(values), 1)]
		}
		if len(values) == 0 {
			return ""
		}
		all = append(all, values...)
	}
	if len(all) == 1 {
		return all[0]
	}
	for i := range all { // different lists must not result in the same text
		all[i] = partEscaper.Replace(all[i])
	}
	return strings.Join(all, "|")
}

var partEscaper = strings.NewReplacer("%", "%25", "|", "%7C")
