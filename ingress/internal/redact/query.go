package redact

import (
	"slices"
	"strings"
)

// Query returns the query parameters of the request, without the parameters that may hold the
// token. The names and values are redacted and in UTF-8. Their total size is bounded, because the
// request line and headers cannot exceed 32 KB.
func (r *Redactor) Query() map[string][]string {
	query := nonTokenParameters(r.request.URL.RawQuery)
	var renamed []string
	for name, values := range query {
		for i, value := range values {
			values[i] = r.RedactText(value)
		}
		if r.RedactText(name) != name {
			renamed = append(renamed, name)
		}
	}
	slices.Sort(renamed)
	for _, name := range renamed {
		clean := r.RedactText(name)
		query[clean] = append(query[clean], query[name]...)
		delete(query, name)
	}
	return query
}

// nonTokenParameters parses a raw query and omits every parameter with the name of a token
// parameter, whether or not its token is valid. Unlike url.ParseQuery it loses nothing: a semicolon
// is an ordinary character. A value that cannot be unescaped, or would not be UTF-8 afterwards, is
// kept as sent.
func nonTokenParameters(raw string) map[string][]string {
	var others map[string][]string
	var room []string // one backing array for the values of all names: most names have one value
	for raw != "" {
		var pair, rest string
		pair, rest, _ = strings.Cut(raw, "&")
		name, value, _ := strings.Cut(pair, "=")
		if pair == "" || isTokenParameter(name) {
			raw = rest
			continue
		}
		if others == nil {
			most := strings.Count(raw, "&") + 1
			others, room = make(map[string][]string, most), make([]string, 0, most)
		}
		raw = rest
		name, value = unescape(name), unescape(value)
		if values := others[name]; values != nil {
			others[name] = append(values, value)
			continue
		}
		room = append(room, value)
		others[name] = room[len(room)-1 : len(room) : len(room)]
	}
	return others
}
