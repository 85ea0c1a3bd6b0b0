package apiserver_test

import (
	"encoding/json"
	"fmt"
	"math"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// schema is the part of a JSON Schema that the OpenAPI document uses.
type schema struct {
	Ref        string `json:"$ref"`
	Type       any    // a name, or a list of names
	Properties map[string]*schema
	Required   []string
	Items      *schema
	Enum       []any
	Additional json.RawMessage `json:"additionalProperties"` // false, true, or a schema
}

type documentedAnswer struct {
	Headers map[string]any
	Content map[string]struct{ Schema *schema }
}

// document is the part of the OpenAPI document that describes responses. All rigs share one
// document.
type document struct {
	Paths      map[string]map[string]struct{ Responses map[string]documentedAnswer }
	Components struct{ Schemas map[string]*schema }
}

var theDocument struct {
	sync.Once
	document
}

func (r *rig) document() *document {
	r.t.Helper()
	theDocument.Do(func() {
		request, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet,
			r.server.URL+"/api/v1/openapi.json", nil)
		r.check(err)
		request.Header.Set("Authorization", "Bearer "+adminToken)
		response, err := r.server.Client().Do(request)
		r.check(err)
		defer func() { _ = response.Body.Close() }()
		r.check(json.NewDecoder(response.Body).Decode(&theDocument.document))
	})
	return &theDocument.document
}

// answers returns the documented responses of a call, or nil if there is no such call.
func (d *document) answers(method, path string) map[string]documentedAnswer {
	path, _, _ = strings.Cut(path, "?")
	var found map[string]documentedAnswer
	for template, methods := range d.Paths {
		op, ok := methods[strings.ToLower(method)]
		if !ok || !strings.Contains(template, "{") && template != path {
			continue
		}
		parts, names := strings.Split(path, "/"), strings.Split(template, "/")
		if template == path {
			return op.Responses
		}
		if slices.EqualFunc(parts, names, func(part, name string) bool {
			return part == name || part != "" && strings.HasPrefix(name, "{")
		}) {
			found = op.Responses
		}
	}
	return found
}

// conforms checks that a response matches the OpenAPI document. It checks the status, the headers,
// the media type and every member of the body.
func (r *rig) conforms(method, path string, a answer) {
	r.t.Helper()
	d := r.document()
	answers := d.answers(method, path)
	if answers == nil {
		return
	}
	said, documented := answers[strconv.Itoa(a.status)]
	if !documented {
		r.t.Errorf("%s: the OpenAPI document does not know the status %d: %.200s", a.call, a.status,
			a.body)
		return
	}
	for _, name := range []string{"ETag", "Retry-After"} {
		// ETag must be present if and only if it is documented. A documented Retry-After may be
		// missing, which means that the client must not repeat the call unchanged.
		if _, ok := said.Headers[name]; ok != (a.header.Get(name) != "") &&
			(name == "ETag" || !ok) {
			r.t.Errorf("%s: %d has %s %q, and is documented with %v", a.call, a.status, name,
				a.header.Get(name), said.Headers)
		}
	}
	mediaType, _, _ := mime.ParseMediaType(a.header.Get("Content-Type"))
	content, documented := said.Content[mediaType]
	if !documented && mediaType+string(a.body) != "" {
		r.t.Errorf("%s: %d is documented without %s", a.call, a.status, mediaType)
	}
	var body any
	if strings.HasSuffix(mediaType, "json") && json.Unmarshal(a.body, &body) == nil {
		if wrong := d.wrong(content.Schema, body, "body"); wrong != "" {
			r.t.Errorf("%s: %d is not as documented: %s\n%.1000s", a.call, a.status, wrong, a.body)
		}
	}
}

// wrong returns where and why a value does not match a schema, or "" if it matches. at says where
// the value is in the response; the result quotes it.
func (d *document) wrong(s *schema, value any, at string) string {
	if name, is := strings.CutPrefix(s.Ref, "#/components/schemas/"); is {
		return d.wrong(d.Components.Schemas[name], value, at)
	}
	if len(s.Enum) > 0 && !slices.Contains(s.Enum, value) {
		return fmt.Sprintf("%s is %v, not one of %v", at, value, s.Enum)
	}
	types := fmt.Sprint(s.Type)
	is := func(name string) bool {
		return s.Type == nil || slices.Contains(strings.Fields(strings.Trim(types, "[]")), name)
	}
	ok := false
	switch v := value.(type) {
	case nil:
		ok = is("null")
	case bool:
		ok = is("boolean")
	case float64:
		ok = is("number") || is("integer") && v == math.Trunc(v)
	case string:
		ok = is("string")
	case []any:
		if ok = is("array"); ok && s.Items != nil {
			for i, item := range v {
				if wrong := d.wrong(s.Items, item, fmt.Sprintf("%s[%d]", at, i)); wrong != "" {
					return wrong
				}
			}
		}
	case map[string]any:
		if ok = is("object"); ok && s.Type != nil {
			return d.wrongMember(s, v, at)
		}
	}
	if !ok {
		return fmt.Sprintf("%s is %.100v, not of the type %s", at, value, types)
	}
	return ""
}

func (d *document) wrongMember(s *schema, members map[string]any, at string) string {
	for _, name := range s.Required {
		if _, ok := members[name]; !ok {
			return at + " has no " + name
		}
	}
	for name, member := range members {
		of := s.Properties[name]
		if of == nil {
			if err := json.Unmarshal(s.Additional, &of); err != nil {
				return fmt.Sprintf("%s has %s", at, name) // "false" is not a schema
			}
		}
		if wrong := d.wrong(of, member, at+"."+name); wrong != "" {
			return wrong
		}
	}
	return ""
}
