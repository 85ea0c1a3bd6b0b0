package sender

import (
	"errors"
	"fmt"
	"net/textproto"
	"slices"
	"strings"

	"github.com/hookstart/hookstart/shared/execution"
)

// RequestPlace identifies a place in a request, such as a header, in the notation of a trigger
// node's settings.
type RequestPlace struct{ source valueSource }

var errInvalidPlace = errors.New(
	"a place is header:Name, ptr:/json/pointer, form:field or query:name",
)

// ParseRequestPlace parses a place. It rejects a place that holds a credential, such as the
// Authorization header or the token parameter, because operators can see a filter's places and the
// values with which it compares them.
func ParseRequestPlace(text string) (RequestPlace, error) {
	kind, rest, _ := strings.Cut(text, ":")
	s, err := parseSource(text, false)
	switch {
	case kind == "query" && rest != "":
		if rest == "token" || rest == "access_token" {
			return RequestPlace{}, fmt.Errorf("the parameter %s holds the node's token", rest)
		}
		return RequestPlace{valueSource{kind: sourceQueryParam, name: rest}}, nil
	case errors.Is(err, errInvalidSource):
		return RequestPlace{}, errInvalidPlace
	case err != nil:
		return RequestPlace{}, err
	case s.kind == sourceHeader &&
		slices.Contains(credentialHeaders, textproto.CanonicalMIMEHeaderKey(rest)):
		return RequestPlace{},
			fmt.Errorf("the header %s holds a secret, and what is compared with it is shown", rest)
	}
	return RequestPlace{s}, nil
}

// JSONPointer returns the tokens of a JSON pointer, or nil if the place is not a JSON pointer.
func (p RequestPlace) JSONPointer() []string {
	if p.source.kind != sourceJSONPointer {
		return nil
	}
	return p.source.pointer
}

// HeaderName returns the canonical name of the header, or "" if the place is not a header.
func (p RequestPlace) HeaderName() string {
	if p.source.kind != sourceHeader {
		return ""
	}
	return p.source.name
}

// Text returns the decoded value at a place that is not a JSON pointer: the first value of a
// header, form field or query parameter. ok reports whether there is a value, which may be empty.
func (p RequestPlace) Text(r *Request) (text string, ok bool) {
	switch p.source.kind {
	case sourceHeader:
		if values := r.headerValues(p.source.name); len(values) > 0 {
			return values[0], true
		}
	case sourceFormField:
		return r.formValue(p.source.name)
	case sourceQueryParam:
		f := parseURLEncodedForm(r.Query)
		return f.firstValue(p.source.name)
	// For JSON pointers, callers use JSONDocument. ParseRequestPlace accepts no part of a
	// signature.
	case sourceJSONPointer, sourceSignaturePart:
	}
	return "", false
}

// JSONDocument returns the JSON text that pointers refer to: the payload form field, or else the
// body. It returns nil if that is not JSON.
func (r *Request) JSONDocument() []byte {
	text := r.Body
	if payload, ok := r.formValue("payload"); ok {
		text = []byte(payload)
	} else if r.KnownJSON {
		return text
	}
	if !execution.ValidJSON(text) {
		return nil
	}
	return text
}
