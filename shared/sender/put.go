package sender

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strings"
)

// SetDeliveryID writes a delivery ID to the place in a request where the sender would put it. The
// request must not be signed yet. SetDeliveryID replaces an existing ID; otherwise it prefers a
// header to the body. It returns false and leaves the request unchanged if it cannot write the ID
// anywhere.
func (s *Sender) SetDeliveryID(r *Request, id string) bool {
	if id == "" {
		return false
	}
	fits := [...]func(*deliveryIDSource) bool{
		func(from *deliveryIDSource) bool { return from.find(r) != "" },
		func(from *deliveryIDSource) bool { return from.find(r) == "" && !from.inBody },
		func(from *deliveryIDSource) bool { return from.find(r) == "" && from.inBody },
	}
	for _, fit := range fits {
		for i := range s.deliveryIDSources {
			from := &s.deliveryIDSources[i]
			if !fit(from) {
				continue
			}
			try := r.mutableCopy()
			if !from.set(&try, id) {
				continue
			}
			if found := from.find(&try); strings.Contains(found, id) ||
				strings.Contains(found, partEscaper.Replace(id)) {
				*r = try
				return true
			}
		}
	}
	return false
}

// set writes the delivery ID value into r. If an ID consists of several parts of a request, set
// chooses one of them: the first part whose name looks like the name of an ID or, if there is none,
// the last part. It overwrites the chosen part. It also writes value to each other part, but only
// if r has no value there. It returns false if a part cannot be written.
func (id *deliveryIDSource) set(r *Request, value string) bool {
	names := len(id.parts) - 1
	for i, part := range id.parts {
		if part.looksLikeID() {
			names = i
			break
		}
	}
	for i, part := range id.parts {
		if i != names && part.value(r) != "" {
			continue
		}
		if part.set(r, value) != nil {
			return false
		}
	}
	return true
}

// looksLikeID reports whether the name of a source looks like the name of an ID: id, uuid, Ce-Id,
// MessageSid.
func (s valueSource) looksLikeID() bool {
	name := s.name
	if s.kind == sourceJSONPointer {
		name = s.pointer[len(s.pointer)-1]
	}
	return strings.HasSuffix(strings.ToLower(name), "id")
}

// set writes value to the part of the request r that s describes. It returns ErrUnsupportedBody if
// the format of the body does not allow that.
func (s valueSource) set(r *Request, value string) error {
	switch s.kind {
	case sourceHeader:
		r.Header[s.name] = []string{value}
		return nil
	case sourceJSONPointer:
		return s.setJSON(r, value)
	case sourceFormField:
		return s.setField(r, value)
	// No preset has a signature or a delivery ID in these places.
	case sourceQueryParam, sourceSignaturePart:
	}
	return ErrUnsupportedBody
}

func (s valueSource) setJSON(r *Request, value string) error {
	decoder := json.NewDecoder(bytes.NewReader(r.Body))
	decoder.UseNumber()
	var document any
	if len(bytes.TrimSpace(r.Body)) == 0 {
		document = map[string]any{}
	} else if !r.json().Exists() || decoder.Decode(&document) != nil {
		return ErrUnsupportedBody
	}
	if !setMember(document, s.pointer, s.builtIn, value) {
		return ErrUnsupportedBody
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if encoder.Encode(document) != nil {
		return ErrUnsupportedBody
	}
	r.changeBody(bytes.TrimSuffix(text.Bytes(), []byte("\n")))
	return nil
}

// setField replaces a field of a URL-encoded form, or adds it.
func (s valueSource) setField(r *Request, value string) error {
	mediaType, _, _ := strings.Cut(r.header("Content-Type"), ";")
	if !strings.EqualFold(strings.TrimSpace(mediaType), urlEncodedFormType) {
		return ErrUnsupportedBody
	}
	var pairs []string
	for pair := range strings.SplitSeq(string(r.Body), "&") {
		rawName, _, _ := strings.Cut(pair, "=")
		if name, err := url.QueryUnescape(rawName); pair != "" && (err != nil || name != s.name) {
			pairs = append(pairs, pair)
		}
	}
	pairs = append(pairs, url.QueryEscape(s.name)+"="+url.QueryEscape(value))
	r.changeBody([]byte(strings.Join(pairs, "&")))
	return nil
}

func (r *Request) changeBody(body []byte) { r.Body, r.document, r.form = body, nil, nil }

// setMember sets the member of an object that a JSON pointer selects, and creates missing objects
// on the way. A * in the pointer means each element of an array if the parameter every is true, and
// otherwise a member named *. setMember reports whether it could set the member.
func setMember(in any, pointer []string, every bool, value string) bool {
	object, ok := in.(map[string]any)
	if !ok {
		return false
	}
	name, rest := pointer[0], pointer[1:]
	if len(rest) == 0 {
		object[name] = value
		return true
	}
	if rest[0] != "*" || !every {
		if object[name] == nil {
			object[name] = map[string]any{}
		}
		return setMember(object[name], rest, every, value)
	}
	elements, _ := object[name].([]any)
	if len(elements) == 0 {
		elements = []any{map[string]any{}}
		object[name] = elements
	}
	for _, element := range elements {
		if len(rest) < 2 || !setMember(element, rest[1:], every, value) {
			return false
		}
	}
	return true
}
