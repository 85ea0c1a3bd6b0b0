package humantext

import (
	"testing"
	"time"
)

func TestAgo(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for back, want := range map[time.Duration]string{
		0:                                "just now",
		4 * time.Second:                  "just now",
		5 * time.Second:                  "5 s ago",
		59 * time.Second:                 "59 s ago",
		2*time.Minute + 10*time.Second:   "2 min ago",
		179 * time.Second:                "2 min ago",
		90 * time.Minute:                 "1 h ago",
		47 * time.Hour:                   "47 h ago",
		49 * time.Hour:                   "2 days ago",
		71 * time.Hour:                   "2 days ago",
		-time.Second:                     "just now",
		-3 * time.Second:                 "in 3 s",
		-time.Hour + time.Second:         "in 59 min",
		-time.Hour + 20*time.Millisecond: "in 1 h",
		-time.Hour:                       "in 1 h",
		-2*time.Hour + 40*time.Second:    "in 1 h",
		-2*time.Hour + 20*time.Second:    "in 2 h",
		-48*time.Hour + time.Second:      "in 2 days",
		-61 * time.Hour:                  "in 2 days",
		-90*24*time.Hour + time.Minute:   "in 90 days",
	} {
		if got := Ago(now.Add(-back), now); got != want {
			t.Errorf("%s: %s, want %s", back, got, want)
		}
	}
}

func TestDecimalBytes(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]struct {
		count int64
		unit  string
	}{
		0:                 {0, ""},
		999:               {999, ""},
		1_000:             {1, "KB"},
		1_001:             {1_001, ""},
		1_500_000:         {1_500, "KB"},
		5_000_000_000:     {5, "GB"},
		7_000_000_000_000: {7, "TB"},
		1e15:              {1_000, "TB"},
	} {
		if count, unit := ScaleDecimalBytes(n); count != want.count || unit != want.unit {
			t.Errorf("%d: %d %q, want %d %q", n, count, unit, want.count, want.unit)
		}
	}
}
