package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/humantext"
)

const exactTimeLayout = "2006-01-02 15:04:05.000 UTC"

func exactTime(t time.Time) string { return t.UTC().Format(exactTimeLayout) }

func ago(t, now time.Time) string { return humantext.Ago(t, now) }

// agoOr is like ago, but returns the text in none if t is zero.
func agoOr(t, now time.Time, none string) string {
	if t.IsZero() {
		return none
	}
	return ago(t, now)
}

// preciseDuration formats a duration, rounded to whole microseconds below 1 ms, to whole
// milliseconds below 1 s, and otherwise to 10 ms.
func preciseDuration(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	default:
		return d.Round(10 * time.Millisecond).String()
	}
}

// agoAndExact returns how long ago t was, followed by the exact time in parentheses. It returns a
// dash if t is zero.
func agoAndExact(t, now time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return ago(t, now) + " (" + exactTime(t) + ")"
}

// timeWithElapsed formats t, followed by the duration t - from, such as (+2s). It omits the
// duration if from is zero, and returns "" if t is zero.
func timeWithElapsed(from, t time.Time) string {
	if t.IsZero() {
		return ""
	}
	if from.IsZero() {
		return exactTime(t)
	}
	return exactTime(t) + " (+" + preciseDuration(t.Sub(from)) + ")"
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

func rateLimitText(r *api.RateLimit) string {
	if r == nil {
		return "the plan's"
	}
	requests := strconv.FormatInt(r.Requests, 10)
	if per, ok := humantext.RateSuffix(r.WindowSeconds); ok {
		return requests + per
	}
	return requests + " in " + (time.Duration(r.WindowSeconds) * time.Second).String()
}

// decimalBytes formats a number of bytes exactly, in the largest decimal unit that divides it.
func decimalBytes(n int64) string {
	count, unit := humantext.ScaleDecimalBytes(n)
	return strconv.FormatInt(count, 10) + " " + cmp.Or(unit, "B")
}

// truncateForDisplay truncates text to at most width characters, including the ellipsis that marks
// the cut. Do not use it for a text that users may want to copy.
func truncateForDisplay(text string, width int) string {
	runes := []rune(text)
	if len(runes) <= width {
		return text
	}
	return string(runes[:width-1]) + "…"
}

// sanitizeLine replaces the characters in text that would break the line or that a terminal would
// interpret.
func sanitizeLine(text string) string { return strings.Map(sanitizeRune, text) }

// sanitizeLines is like sanitizeLine, but keeps line breaks.
func sanitizeLines(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' {
			return r
		}
		return sanitizeRune(r)
	}, text)
}

// zeroWidthNonJoiner and zeroWidthJoiner are not printable, but sanitizeRune keeps them, because
// they are part of words and emoji, and no terminal interprets them.
const zeroWidthNonJoiner, zeroWidthJoiner = '\u200c', '\u200d'

func sanitizeRune(r rune) rune {
	switch {
	case unicode.IsSpace(r): // including the no-break space, which some terminals cannot show
		return ' '
	case unicode.IsPrint(r), r == zeroWidthNonJoiner, r == zeroWidthJoiner:
		return r
	default:
		return unicode.ReplacementChar
	}
}

// indentJSON formats JSON on several lines. If the JSON is nested so deeply that most of the result
// would be white space, indentJSON does not indent it.
func indentJSON(text json.RawMessage) string {
	const readable = 40
	var to bytes.Buffer
	if nestingDepth(text) > readable || json.Indent(&to, text, "", "  ") != nil {
		return sanitizeLines(string(text))
	}
	return sanitizeLines(to.String())
}

// nestingDepth returns the maximum nesting depth of a JSON text.
func nestingDepth(text json.RawMessage) (maxDepth int) {
	tokens := json.NewDecoder(bytes.NewReader(text))
	tokens.UseNumber()
	for now := 0; ; {
		token, err := tokens.Token()
		if err != nil {
			return maxDepth
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			now++
			maxDepth = max(maxDepth, now)
		case json.Delim('}'), json.Delim(']'):
			now--
		}
	}
}
