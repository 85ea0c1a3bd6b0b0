package cli

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/hookstart/hookstart/executor/client/api"
)

const exactLayout = "2006-01-02 15:04:05.000 UTC"

func exactTime(t time.Time) string { return t.UTC().Format(exactLayout) }

// ago returns how long ago t was, or how long it is until t, as text.
func ago(t, now time.Time) string {
	d := now.Sub(t).Round(time.Second)
	if d >= 0 && d < 5*time.Second {
		return "just now"
	}
	if d >= 0 {
		return roughDuration(d) + " ago"
	}
	if d = -d; d > time.Hour {
		// Round, because the response is already a moment old: 90 days would be shown as 89.
		d = d.Round(time.Minute)
	}
	return "in " + roughDuration(d)
}

// agoOr is like ago, but returns none if t is zero.
func agoOr(t, now time.Time, none string) string {
	if t.IsZero() {
		return none
	}
	return ago(t, now)
}

func roughDuration(d time.Duration) string {
	switch {
	case d < time.Minute:
		return strconv.Itoa(int(d.Seconds())) + " s"
	case d < time.Hour:
		return strconv.Itoa(int(d.Minutes())) + " min"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d.Hours())) + " h"
	default:
		return strconv.Itoa(int(d.Hours()/24)) + " days"
	}
}

// preciseDuration formats a duration with about three digits.
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

// agoAndExact formats a time both relative to now and exactly.
func agoAndExact(t, now time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return ago(t, now) + " (" + exactTime(t) + ")"
}

// timeWithElapsed formats a time, with the duration since from if that is not zero. It returns ""
// if t is zero.
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

func rateText(r *api.RateLimit) string {
	if r == nil {
		return "the plan's"
	}
	requests := strconv.FormatInt(r.Requests, 10)
	if unit, ok := map[int64]string{1: "s", 60: "min", 3600: "h"}[r.WindowSeconds]; ok {
		return requests + "/" + unit
	}
	return requests + " in " + (time.Duration(r.WindowSeconds) * time.Second).String()
}

// decimalBytes formats a number of bytes exactly, in the largest decimal unit (KB, MB, GB or TB)
// that divides it.
func decimalBytes(n int64) string {
	unit := " B"
	for _, larger := range [...]string{" KB", " MB", " GB", " TB"} {
		if n < 1000 || n%1000 != 0 {
			break
		}
		n, unit = n/1000, larger
	}
	return strconv.FormatInt(n, 10) + unit
}

// truncateForDisplay truncates a text that people only read. Do not use it for texts that they may
// want to copy.
func truncateForDisplay(text string, width int) string {
	runes := []rune(text)
	if len(runes) <= width {
		return text
	}
	return string(runes[:width-1]) + "…"
}

// oneLine replaces the characters in text that would break the line or that a terminal would
// interpret.
func oneLine(text string) string { return strings.Map(visible, text) }

// visibleLines is like oneLine, but keeps line breaks.
func visibleLines(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' {
			return r
		}
		return visible(r)
	}, text)
}

// These two characters are part of words and emoji, and no terminal interprets them.
const zeroWidthNonJoiner, zeroWidthJoiner = '\u200c', '\u200d'

func visible(r rune) rune {
	switch {
	case unicode.IsSpace(r): // including the no-break space, which some terminals cannot show
		return ' '
	case unicode.IsPrint(r), r == zeroWidthNonJoiner, r == zeroWidthJoiner:
		return r
	default:
		return unicode.ReplacementChar
	}
}

// indented formats JSON on several lines. It leaves JSON on one line if deep nesting would make
// most of the result white space.
func indented(text json.RawMessage) string {
	const readable = 40
	var to bytes.Buffer
	if nestingDepth(text) > readable || json.Indent(&to, text, "", "  ") != nil {
		return visibleLines(string(text))
	}
	return visibleLines(to.String())
}

// nestingDepth returns the maximum nesting depth of a JSON text.
func nestingDepth(text json.RawMessage) (most int) {
	tokens := json.NewDecoder(bytes.NewReader(text))
	tokens.UseNumber()
	for now := 0; ; {
		token, err := tokens.Token()
		if err != nil {
			return most
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			now++
			most = max(most, now)
		case json.Delim('}'), json.Delim(']'):
			now--
		}
	}
}
