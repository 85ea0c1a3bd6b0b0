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

	"github.com/hookstart/hookstart/shared/execution"
)

// Request is what a sender sent. It remembers what was read of it, so it is for one goroutine.
type Request struct {
	Method string
	Header map[string][]string // by canonical names
	Query  string              // raw
	// URL is what the sender called: the configured public URL, path and query as received; never
	// the Host header's. Empty: no public URL is configured, and no signature over it verifies.
	URL  string
	Body []byte // as sent

	document *gjson.Result // of the body, read when it is first needed
	form     *form
}

// header is the first value of a header that is not empty.
func (r *Request) header(canonical string) string {
	for _, value := range r.Header[canonical] {
		if value != "" {
			return value
		}
	}
	return ""
}

// json is the body as a document; of a form, its field payload. Without JSON there is no document.
func (r *Request) json() gjson.Result {
	if r.document == nil {
		text := r.Body
		if payload, is := r.formValue("payload"); is {
			text = []byte(payload)
		}
		var document gjson.Result
		if execution.ValidJSON(text) {
			document = gjson.ParseBytes(text)
		}
		r.document = &document
	}
	return *r.document
}

// payload is what Gitea signs: the JSON in a form's field payload, else the body.
func (r *Request) payload() []byte {
	if payload, is := r.formValue("payload"); is {
		return []byte(payload)
	}
	return r.Body
}

// formType is the media type of an ordinary form.
const formType = "application/x-www-form-urlencoded"

// form is a form's fields in the order in which they were sent.
type form struct {
	fields []field
	ok     bool // every pair could be read
}

type field struct{ name, value string }

// formValue is the first value of a field, if the body's media type is that of a form.
func (r *Request) formValue(name string) (string, bool) {
	if r.form == nil {
		f := r.readForm()
		r.form = &f
	}
	for _, f := range r.form.fields {
		if f.name == name {
			return f.value, true
		}
	}
	return "", false
}

func (r *Request) readForm() form {
	contentType := r.header("Content-Type")
	mediaType, _, _ := strings.Cut(contentType, ";")
	switch mediaType = strings.TrimSpace(mediaType); {
	case strings.EqualFold(mediaType, formType):
		return parseForm(string(r.Body))
	case strings.EqualFold(mediaType, "multipart/form-data"):
		return readMultipart(contentType, r.Body)
	default:
		return form{}
	}
}

// parseForm reads application/x-www-form-urlencoded. Not ok: there are pairs that cannot be unescaped, which are left out.
func parseForm(text string) form {
	f := form{ok: true}
	for text != "" {
		var pair string
		pair, text, _ = strings.Cut(text, "&")
		if pair == "" {
			continue
		}
		rawName, rawValue, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(rawName)
		if err != nil {
			f.ok = false
			continue
		}
		value, err := url.QueryUnescape(rawValue)
		if err != nil {
			f.ok = false
			continue
		}
		f.fields = append(f.fields, field{name, value})
	}
	return f
}

// maxParts bounds what is read of a multipart form: the fields that matter come first or are few.
const maxParts = 1000

// readMultipart reads the fields of multipart/form-data that are no files.
func readMultipart(contentType string, body []byte) form {
	_, parameters, err := mime.ParseMediaType(contentType)
	if err != nil || parameters["boundary"] == "" {
		return form{}
	}
	f := form{ok: true}
	reader := multipart.NewReader(bytes.NewReader(body), parameters["boundary"])
	for range maxParts {
		part, err := reader.NextRawPart()
		if err != nil {
			f.ok = err == io.EOF //nolint:errorlint // the reader's contract
			return f
		}
		name := part.FormName()
		if name == "" || part.FileName() != "" {
			continue
		}
		value, err := io.ReadAll(part)
		if err != nil {
			f.ok = false
			return f
		}
		f.fields = append(f.fields, field{name, string(value)})
	}
	f.ok = false
	return f
}

// queryValue is the first value of a parameter, unescaped.
func (r *Request) queryValue(name string) string {
	for _, f := range parseForm(r.Query).fields {
		if f.name == name {
			return f.value
		}
	}
	return ""
}

func canonicalNames(names []string) []string {
	canonical := make([]string, len(names))
	for i, name := range names {
		canonical[i] = textproto.CanonicalMIMEHeaderKey(name)
	}
	return canonical
}
