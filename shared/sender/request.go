package sender

import (
	"bytes"
	"io"
	"mime"
	"mime/multipart"
	"net/textproto"
	"net/url"
	"strings"

	"github.com/tidwall/gjson"
)

// Request is a request to verify. It caches parsed values, so only one goroutine may use it.
type Request struct {
	// Method is the HTTP method in upper case.
	Method string
	Header map[string][]string // the headers, keyed by canonical name
	// Host is the value of the Host header, which net/http removes from Header. "" means that Host
	// is in Header, or that the request has none.
	Host  string
	Query string // the query as sent, without the question mark
	// URL is the URL that the sender called: the configured public URL, followed by the path and
	// query as received. It never depends on the Host header. "" means that no public URL is
	// configured; a signature over the URL then never verifies.
	URL  string
	Body []byte // the body as sent
	// KnownJSON means that Body is known to be one JSON text. If it is false, Body has not been
	// checked.
	KnownJSON bool
	// RateLimitPerMinute is the number of requests per minute that the node's rate limit permits. 0
	// means no limit.
	RateLimitPerMinute int

	document *gjson.Result // the parsed body; nil means not parsed yet
	form     *form
}

// header returns the first non-empty value of a header, or "".
func (r *Request) header(canonical string) string {
	for _, value := range r.headerValues(canonical) {
		if value != "" {
			return value
		}
	}
	return ""
}

// headerValues returns all values of the header with the given canonical name. It also finds Host,
// which net/http stores separately.
func (r *Request) headerValues(canonical string) []string {
	if canonical == "Host" && r.Host != "" {
		return []string{r.Host}
	}
	return r.Header[canonical]
}

// json returns the parsed JSON of JSONDocument. If there is none, the result's Exists method
// returns false.
func (r *Request) json() gjson.Result {
	if r.document == nil {
		var document gjson.Result
		if text := r.JSONDocument(); text != nil {
			document = gjson.ParseBytes(text)
		}
		r.document = &document
	}
	return *r.document
}

// signedPayload returns the bytes that Gitea signs: the JSON in the payload field of a URL-encoded
// form, otherwise the body.
func (r *Request) signedPayload() []byte {
	if isURLEncodedFormType(r.header("Content-Type")) {
		if payload, ok := r.formValue("payload"); ok {
			return []byte(payload)
		}
	}
	return r.Body
}

// describeUnsignedFields is for methods that sign only the payload field of a form. If the form
// also has other fields, it returns the reason why the request is refused, and otherwise "". It
// also returns "" if the body is not a form with a payload field, because the whole body is then
// signed.
func (r *Request) describeUnsignedFields() string {
	if !isURLEncodedFormType(r.header("Content-Type")) {
		return "" // the whole body is signed
	}
	if _, ok := r.formValue("payload"); !ok {
		return ""
	}
	if len(r.form.fields) > 1 || !r.form.fullyParsed {
		return "the form has more than one field, and only its field payload is signed"
	}
	return ""
}

// urlEncodedFormType is the media type of a URL-encoded form.
const urlEncodedFormType = "application/x-www-form-urlencoded"

func isURLEncodedFormType(contentType string) bool {
	mediaType, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.TrimSpace(mediaType), urlEncodedFormType)
}

// form holds the fields of a form in the order in which they were sent.
type form struct {
	fields                []formField
	fullyParsed           bool // whether every pair could be parsed
	declaredByContentType bool // whether Content-Type declares the body a form
}

// isDeclaredByContentType reports whether Content-Type declares that the body is a form. f may be
// nil.
func (f *form) isDeclaredByContentType() bool { return f != nil && f.declaredByContentType }

// firstValue returns the first value of a field, and reports whether there is one.
func (f *form) firstValue(name string) (value string, ok bool) {
	for _, field := range f.fields {
		if field.name == name {
			return field.value, true
		}
	}
	return "", false
}

type formField struct{ name, value string }

// formValue returns the first value of a form field. It returns false if there is none, or if
// Content-Type does not declare that the body is a form.
func (r *Request) formValue(name string) (string, bool) {
	if r.form == nil {
		f := r.readForm()
		r.form = &f
	}
	return r.form.firstValue(name)
}

func (r *Request) readForm() form {
	contentType := r.header("Content-Type")
	mediaType, _, _ := strings.Cut(contentType, ";")
	var f form
	switch {
	case isURLEncodedFormType(contentType):
		f = parseURLEncodedForm(string(r.Body))
	case strings.EqualFold(strings.TrimSpace(mediaType), "multipart/form-data"):
		f = readMultipart(contentType, r.Body)
	default:
		return f
	}
	f.declaredByContentType = true
	return f
}

// parseURLEncodedForm parses application/x-www-form-urlencoded text. It omits pairs that cannot be
// unescaped; if there are any, the result's field fullyParsed is false.
func parseURLEncodedForm(text string) form {
	f := form{fullyParsed: true}
	for text != "" {
		var pair string
		pair, text, _ = strings.Cut(text, "&")
		if pair == "" {
			continue
		}
		rawName, rawValue, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(rawName)
		if err != nil {
			f.fullyParsed = false
			continue
		}
		value, err := url.QueryUnescape(rawValue)
		if err != nil {
			f.fullyParsed = false
			continue
		}
		f.fields = append(f.fields, formField{name, value})
	}
	return f
}

// maxMultipartParts is the maximum number of parts that are read from a multipart form. The fields
// that presets use are among the first parts.
const maxMultipartParts = 1000

// readMultipart reads the fields of a multipart/form-data body, except for files.
func readMultipart(contentType string, body []byte) form {
	_, parameters, err := mime.ParseMediaType(contentType)
	if err != nil {
		return form{}
	}
	return readParts(parameters["boundary"], body)
}

func readParts(boundary string, body []byte) form {
	if boundary == "" {
		return form{}
	}
	f := form{fullyParsed: true}
	reader := multipart.NewReader(bytes.NewReader(body), boundary)
	for range maxMultipartParts {
		part, err := reader.NextRawPart()
		if err != nil {
			f.fullyParsed = err == io.EOF //nolint:errorlint // the reader's contract
			return f
		}
		name := part.FormName()
		if name == "" || part.FileName() != "" {
			continue
		}
		value, err := io.ReadAll(part)
		if err != nil {
			f.fullyParsed = false
			return f
		}
		f.fields = append(f.fields, formField{name, string(value)})
	}
	f.fullyParsed = false
	return f
}

// queryValue returns the first value of a query parameter, unescaped, or "" if there is none.
func (r *Request) queryValue(name string) string {
	for _, f := range parseURLEncodedForm(r.Query).fields {
		if f.name == name {
			return f.value
		}
	}
	return ""
}

func canonicalHeaderNames(names []string) []string {
	canonical := make([]string, len(names))
	for i, name := range names {
		canonical[i] = textproto.CanonicalMIMEHeaderKey(name)
	}
	return canonical
}
