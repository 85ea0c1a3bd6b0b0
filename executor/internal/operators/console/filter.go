package console

import (
	"html/template"
	"net/url"
	"slices"
	"strings"
	"time"
)

// timeSpan is a time span that operators can select in a filter.
type timeSpan struct {
	ID, Name string
	Length   time.Duration
}

// filterTimeSpans holds the time spans that most filters offer. auditTimeSpans adds longer ones for
// the audit log, whose entries are kept longer.
var (
	filterTimeSpans = []timeSpan{
		{"1h", "last hour", time.Hour}, {"24h", "last 24 hours", 24 * time.Hour}, {
			"7d", "last 7 days", 7 * 24 * time.Hour,
		},
	}
	auditTimeSpans = append(slices.Clip(filterTimeSpans), timeSpan{
		"30d", "last 30 days", 30 * 24 * time.Hour,
	}, timeSpan{
		"90d", "last 90 days", 90 * 24 * time.Hour,
	})
)

// timeSpanStart returns the beginning of the time span with the given ID, which ends at the given
// time. It returns the zero time if the ID is "" or unknown.
func timeSpanStart(within string, end time.Time) (at time.Time) {
	if i := slices.IndexFunc(auditTimeSpans,
		func(s timeSpan) bool { return s.ID == within }); i >= 0 {
		at = end.Add(-auditTimeSpans[i].Length).UTC()
	}
	return at
}

// filterReader reads a filter from a page's query. It ignores invalid values, and collects
// descriptions of them for the page.
type filterReader struct {
	query   url.Values
	ignored []string // descriptions of the ignored values, for display
}

func (f *filterReader) text(name string) string { return strings.TrimSpace(f.query.Get(name)) }

// validValue returns the value of the query parameter called name. If valid returns false for the
// value, validValue returns "" and adds a message that the value is ignored; noun says in the
// message what the value should be, such as "status".
func (f *filterReader) validValue(name, noun string, valid func(string) bool) string {
	value := f.query.Get(name)
	if value == "" || valid(value) {
		return value
	}
	f.ignored = append(f.ignored, "“"+shortened(value)+"” is not a "+noun)
	return ""
}

func (f *filterReader) timeSpanID(spans []timeSpan) string {
	return f.validValue("within", "span of time", func(id string) bool {
		return slices.ContainsFunc(spans, func(s timeSpan) bool { return s.ID == id })
	})
}

// shortened returns text, cut to 40 characters. Pages use it to quote parts of a query in messages.
func shortened(text string) string {
	const longest = 40
	if runes := []rune(text); len(runes) > longest {
		return string(runes[:longest]) + "…"
	}
	return text
}

// queryOf returns a URL query that contains the given parameters, except those with empty values.
func queryOf(parameters map[string]string) url.Values {
	query := url.Values{}
	for name, value := range parameters {
		if value != "" {
			query.Set(name, value)
		}
	}
	return query
}

// encodeQuery encodes a query for use after the "?" of a link. It returns a template.URL because
// templates would escape the "&" and "=" of a string again.
func encodeQuery(query url.Values) template.URL {
	return template.URL(query.Encode()) //nolint:gosec // encoded
}
