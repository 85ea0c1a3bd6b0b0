package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/cmd/hookstart/internal/sizing"
)

func TestExactTimes(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	before := now.Add(-2 * time.Minute)
	if got := agoAndExact(before, now); got != "2 min ago (2026-01-31 11:58:00.000 UTC)" {
		t.Error(got)
	}
	later := now.Add(1234567 * time.Microsecond)
	if got := timeWithElapsed(now, later); got != "2026-01-31 12:00:01.234 UTC "+
		"(+1.23s)" {
		t.Error(got)
	}
}

func TestWhatATerminalWouldObeyIsTakenOut(t *testing.T) {
	if family := "👩\u200d👧 می\u200cخواهم"; sanitizeLine(family) != family {
		t.Errorf("%q", sanitizeLine(family))
	}
	hostile := "a\x1b[2Jb\nc\u009bd\u202ee"
	if got := sanitizeLine(hostile); got != "a\uFFFD[2Jb c\uFFFDd\uFFFDe" {
		t.Errorf("%q", got)
	}
	if got := indentJSON([]byte("{\"a\":\"\u009b\"}")); got != "{\n  \"a\": \"\uFFFD\"\n}" {
		t.Errorf("%q", got)
	}
	if got := nestingDepth([]byte(`{"[[\"[":[{},{"a":[]}],"b":[]}`)); got != 4 {
		t.Errorf("depth %d", got)
	}
	deep := strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)
	if got := indentJSON([]byte(deep)); got != deep {
		t.Errorf("%.100q", got)
	}
	if got := truncateForDisplay("Überlänge", 5); got != "Über…" {
		t.Error(got)
	}
}

func TestMoments(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"1h":                        now.Add(-time.Hour),
		"1h ago":                    now.Add(-time.Hour),
		"1h30mago":                  now.Add(-90 * time.Minute),
		"2d":                        now.Add(-48 * time.Hour),
		"0.5d ago":                  now.Add(-12 * time.Hour),
		"2026-01-31T13:00:00+01:00": now,
	} {
		if got, err := parseTimeArg(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", "ago", "-1h", "1", "yesterday", "NaNd", "1e300d", "2026-01-31",
	} {
		if got, err := parseTimeArg(text, now); err == nil {
			t.Errorf("%q: %s", text, got)
		}
	}
}

func TestAmounts(t *testing.T) {
	for _, c := range []struct {
		n    float64
		unit sizing.Unit
		want string
	}{
		{0, sizing.UnitBytes, "0 B"},
		{999, sizing.UnitBytes, "999 B"},
		{1_000, sizing.UnitBytes, "1.0 KB"},
		{14_200_000, sizing.UnitBytes, "14 MB"},
		{8_000_000_000, sizing.UnitBytes, "8.0 GB"},
		{2_500_000_000_000, sizing.UnitBytes, "2.5 TB"},
		{3_000_000_000_000_000, sizing.UnitBytes, "3000 TB"},
		{0, sizing.UnitPerSecond, "0/s"},
		{0.1234, sizing.UnitPerSecond, "0.12/s"},
		{0.0333, sizing.UnitPerSecond, "120/h"},
		{1.0 / 3600, sizing.UnitPerSecond, "1.0/h"},
		{0.0001234, sizing.UnitPerSecond, "11/day"},
		{580, sizing.UnitPerSecond, "580/s"},
		{90, sizing.UnitSeconds, "1 min"},
		{604_800, sizing.UnitSeconds, "7 days"},
		{1, sizing.UnitWorkflows, "1 workflow"},
		{1_000_000, sizing.UnitWorkflows, "1,000,000 workflows"},
	} {
		if got := formatAmount(c.n, c.unit); got != c.want {
			t.Errorf("%v %s: %q, want %q", c.n, c.unit, got, c.want)
		}
	}
	for n, want := range map[float64]string{
		0: "0 %", 9.3e-06: "< 0.01 %", 0.00999: "< 0.01 %", 0.23: "0.23 %", 3.14: "3.1 %",
		250: "250 %",
	} {
		if got := formatPercent(n); got != want {
			t.Errorf("%v: %q, want %q", n, got, want)
		}
	}
	in := func(days float64) sizing.LimitForecast {
		return sizing.LimitForecast{Reached: sizing.ReachedInDays, DaysLeft: &days}
	}
	for want, w := range map[string]sizing.LimitForecast{
		"now":               {Reached: sizing.ReachedNow},
		"within a day":      in(0.9),
		"in 43 days":        in(43.9),
		"not within a year": {Reached: sizing.ReachedNotInAYear},
		"drops the oldest":  {Reached: sizing.ReachedDropsOldest},
		"–":                 {Reached: sizing.ReachedNoLimit},
	} {
		if got := limitReachedText(w); got != want {
			t.Errorf("%+v: %q, want %q", w, got, want)
		}
	}
	unknown := sizing.LimitForecast{Reached: sizing.ReachedNoForecast}
	if got := limitReachedText(unknown); got != "–" {
		t.Errorf("%q", got)
	}
}
