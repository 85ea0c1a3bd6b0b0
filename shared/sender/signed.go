package sender

import (
	"bytes"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/hookstart/hookstart/shared/execution"
)

// coversID reports whether the method's signature covers all parts of the source of a delivery ID.
func (m *method) coversID(id *deliveryIDSource) bool {
	for _, s := range slices.Concat(id.parts, id.mustBeAbsent) {
		if !m.coversSource(s) {
			return false
		}
	}
	return len(id.parts) > 0
}

// coversSource reports whether the method's signature covers a source. It does if the source is
// part of the signed message, or if it is in the body and the whole body is signed.
func (m *method) coversSource(s valueSource) bool {
	switch m.scheme {
	case schemeStatic, schemeBasic: // these do not sign anything
		return false
	case schemeTwilio:
		return s.kind == sourceFormField || s.kind == sourceJSONPointer
	}
	for i := range m.message {
		if p := &m.message[i]; p.kind == partSource && p.source.String() == s.String() {
			return true
		}
	}
	switch s.kind {
	case sourceJSONPointer:
		return m.message.coversBody()
	case sourceFormField:
		return m.message.hasPart(partBody)
	case sourceHeader, sourceQueryParam, sourceSignaturePart:
	}
	return false
}

// signedView returns the request with only the data that the signature covers. The meaning of a
// signed body must not depend on Content-Type, which is not signed. Otherwise, an attacker with a
// copy of a request could change its Content-Type to hide the delivery ID, and send the request
// again with a different one.
func (m *method) signedView(r *Request) *Request {
	view := &Request{
		Method: r.Method, Header: r.Header, Host: r.Host, Query: r.Query, URL: r.URL, Body: r.Body,
	}
	switch {
	// Twilio signs the names and values of a form, not the bytes of the body. So the view has the
	// form, but no JSON document.
	case m.scheme == schemeTwilio && r.signedURLParam(bodyHashParam) == "":
		f := parseURLEncodedForm(string(r.Body))
		view.form, view.document = &f, new(gjson.Result)
	case m.scheme == schemeTwilio || m.message.hasPart(partBody):
		view.parseIgnoringContentType(r)
	case m.message.hasPart(partPayload):
		text := r.signedPayload()
		var document gjson.Result
		if execution.ValidJSON(text) {
			document = gjson.ParseBytes(text)
		}
		view.form, view.document = new(form), &document
	// The signature covers single values instead of the body. Verify has read these values from r,
	// so the delivery ID must be read from r, too: a different view could contain a value that was
	// not verified.
	default:
		return r
	}
	return view
}

// parseIgnoringContentType parses the body regardless of its Content-Type: as JSON, or else as a
// form, whose payload field may contain JSON. r is a copy of original without its cache. If
// original already has the JSON document and is not declared as a form, parseIgnoringContentType
// reuses that document.
func (r *Request) parseIgnoringContentType(original *Request) {
	document := original.json()
	if !document.Exists() || original.form.isDeclaredByContentType() {
		// Because of its Content-Type, which is not signed, original may have parsed the body as a
		// form. Parse it as JSON if it is JSON.
		document = gjson.Result{}
		if execution.ValidJSON(r.Body) {
			document = gjson.ParseBytes(r.Body)
		}
	}
	var fields form
	if !document.Exists() {
		fields = parseFormBody(r.Body)
		if payload, ok := fields.firstValue("payload"); ok && execution.ValidJSON([]byte(payload)) {
			document = gjson.Parse(payload)
		}
	}
	r.document, r.form = &document, &fields
}

// parseFormBody parses a form without knowing its Content-Type. A body that begins with a boundary
// is parsed as multipart/form-data.
func parseFormBody(body []byte) form {
	if rest, ok := bytes.CutPrefix(body, []byte("--")); ok {
		line, _, _ := bytes.Cut(rest, []byte("\n"))
		return readParts(string(bytes.TrimRight(line, " \t\r")), body)
	}
	return parseURLEncodedForm(string(body))
}
