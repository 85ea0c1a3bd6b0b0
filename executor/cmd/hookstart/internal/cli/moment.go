package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// timeArg is a point in time, which can be given as a time or as a duration before now.
type timeArg struct{ time.Time }

// Decode implements kong.MapperValue.
func (m *timeArg) Decode(ctx *kong.DecodeContext) error {
	var text string
	if err := ctx.Scan.PopValueInto("time", &text); err != nil {
		return err
	}
	at, err := parseTimeArg(text, time.Now())
	m.Time = at
	return err
}

func parseTimeArg(text string, now time.Time) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return at, nil
	}
	back, err := parseDuration(strings.TrimSpace(strings.TrimSuffix(text, "ago")))
	if err != nil || back < 0 {
		return time.Time{},
			fmt.Errorf("must be like 2026-01-31T15:04:05Z, or like 90m, 1h or 2d, which is how "+
				"long ago, but got %q", text)
	}
	return now.Add(-back), nil
}

// parseDuration is like time.ParseDuration, but also accepts days.
func parseDuration(text string) (time.Duration, error) {
	if number, inDays := strings.CutSuffix(text, "d"); inDays {
		days, err := strconv.ParseFloat(number, 64)
		const most = 100 * 365
		if err != nil || !(days >= 0 && days <= most) {
			return 0, fmt.Errorf("%q is not a number of days", number)
		}
		return time.Duration(days * 24 * float64(time.Hour)), nil
	}
	return time.ParseDuration(text)
}

// secondsArg is a duration in whole seconds, the unit of durations in the API.
type secondsArg struct{ seconds int64 }

// Decode implements kong.MapperValue.
func (s *secondsArg) Decode(ctx *kong.DecodeContext) error {
	var text string
	if err := ctx.Scan.PopValueInto("duration", &text); err != nil {
		return err
	}
	d, err := parseDuration(text)
	if err != nil || d < 0 || d%time.Second != 0 {
		return fmt.Errorf("must be a duration in whole seconds, like 30s, 1h or 2d, but got %q",
			text)
	}
	s.seconds = int64(d / time.Second)
	return nil
}

var (
	_ kong.MapperValue = (*timeArg)(nil)
	_ kong.MapperValue = (*secondsArg)(nil)
)
