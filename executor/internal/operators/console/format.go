package console

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/hookstart/hookstart/executor/internal/humantext"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/shared/execution"
)

// templateFuncs holds template functions. Most of them format values; the others return the choices
// of form fields and similar data.
var templateFuncs = template.FuncMap{
	"ago": func(t time.Time) template.HTML {
		return timeElement(t, "relative", humantext.Ago(t, time.Now()))
	},
	"since": func(t time.Time) string { return humantext.Ago(t, time.Now()) },
	"exact": func(t time.Time) template.HTML {
		return timeElement(t, "exact", t.UTC().Format("2 Jan 15:04:05.000")+" UTC")
	},
	"local": func(t time.Time) template.HTML {
		return timeElement(t, "local", t.UTC().Format("2 Jan 15:04")+" UTC")
	},
	"duration":  formatDuration,
	"bytes":     formatSize,
	"count":     formatCount,
	"plural":    plural,
	"countUp":   func(n uint64) string { return formatCount(int64(min(n, math.MaxInt64))) },
	"pluralInt": func(n int, noun string) string { return plural(int64(n), noun) },
	"mediaType": mediaType,
	"statuses":  func() []execution.Status { return execution.Statuses },
	"capital":   capitalize,

	"decimalBytes": formatDecimalBytes,

	"eventKinds": operate.EventKinds,
	"nameOr":     nameOrID,
	"streamForm": func(row queueRow, list queueList) ownStreamFormData {
		return ownStreamFormData{row, list}
	},
	"newKey":     newIdempotencyKey,
	"secretEnds": func() []durationChoice { return oldSecretsEndChoices },
	"lifetimes":  func() []durationChoice { return keyLifetimeChoices },
	"pauses":     func() []durationChoice { return pauseChoices },
	"graces":     func() []durationChoice { return gracePeriodChoices },
}

// timeElement returns an HTML element that shows text for the time t. In the browser, times.js
// replaces the text with the time in the local time zone. kind is relative, local or exact.
func timeElement(t time.Time, kind, text string) template.HTML {
	if t.IsZero() {
		return "–"
	}
	t = t.UTC()
	exact := t.Format("2006-01-02 15:04:05.000") + " UTC"
	//nolint:gosec // digits, and words that are written in here
	return template.HTML(`<time datetime="` + t.Format(time.RFC3339Nano) + `" title="` + exact +
		`" data-time="` + kind + `">` + text + `</time>`)
}

// formatDuration formats a duration in one or two units, such as "350 ms" or "2 h 5 min". A
// negative duration counts as 0.
func formatDuration(d time.Duration) string {
	switch {
	case d < 0:
		return "0 ms"
	case d < time.Millisecond:
		return fmt.Sprintf("%.1f ms", d.Seconds()*1e3)
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	default:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
}

func formatSize(n int64) string {
	switch {
	case n < 1024:
		return plural(n, "byte")
	case n < 1<<20:
		return formatOneDecimal(float64(n)/1024) + " KB"
	default:
		return formatOneDecimal(float64(n)/(1<<20)) + " MB"
	}
}

// formatDecimalBytes formats a number of bytes in the largest decimal unit in which it is a whole
// number, such as "5 GB". Unlike formatSize, it does not round.
func formatDecimalBytes(n int64) string {
	count, unit := humantext.ScaleDecimalBytes(n)
	if unit == "" {
		return plural(n, "byte")
	}
	return formatCount(count) + " " + unit
}

func formatOneDecimal(n float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(n, 'f', 1, 64), ".0")
}

// formatCount formats a number with separators between the thousands.
func formatCount(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return formatCount(n) + " " + noun + "s"
}

func capitalize(word string) string {
	if word == "" {
		return word
	}
	return strings.ToUpper(word[:1]) + word[1:]
}

// nameOrID returns name, or id if name is blank.
func nameOrID(name, id string) string {
	if strings.TrimSpace(name) == "" {
		return id
	}
	return name
}

// mediaType returns a Content-Type without its parameters, such as the charset.
func mediaType(contentType string) string {
	name, _, _ := strings.Cut(contentType, ";")
	return strings.TrimSpace(name)
}
