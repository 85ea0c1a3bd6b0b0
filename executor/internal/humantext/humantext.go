// Package humantext formats values for people. The console and the command line use it, so that
// both show the same value in the same words. The console's times.js formats times in the browser,
// in the same words as Ago.
package humantext

import (
	"strconv"
	"time"
)

// Ago returns how long ago t was, such as "2 min ago", or how long it is until t, such as "in 90
// days".
func Ago(t, now time.Time) string {
	d := now.Sub(t).Round(time.Second)
	if d >= 5*time.Second {
		return Duration(d) + " ago"
	}
	if d > -2*time.Second { // the two times may come from different clocks
		return "just now"
	}
	// A moment has passed since t was chosen, so d is slightly too short. Round it: otherwise, a
	// time that was just set to 90 days from now would be shown as "in 89 days".
	switch d = -d; {
	case d >= 2*day:
		d = d.Round(time.Hour)
	case d > time.Hour:
		d = d.Round(time.Minute)
	}
	return "in " + Duration(d)
}

const day = 24 * time.Hour

// Duration returns d in its largest unit, rounded down, such as "3 h". It uses days only for two
// days or more.
func Duration(d time.Duration) string {
	switch {
	case d < time.Minute:
		return strconv.Itoa(int(d.Seconds())) + " s"
	case d < time.Hour:
		return strconv.Itoa(int(d.Minutes())) + " min"
	case d < 2*day:
		return strconv.Itoa(int(d.Hours())) + " h"
	default:
		return strconv.Itoa(int(d/day)) + " days"
	}
}

// RateSuffix returns the suffix of a rate whose window has the given number of seconds: "/s",
// "/min" or "/h" for a window of a second, a minute or an hour. For any other window, ok is false.
func RateSuffix(seconds int64) (text string, ok bool) {
	switch seconds {
	case 1:
		return "/s", true
	case 60:
		return "/min", true
	case 3600:
		return "/h", true
	default:
		return "", false
	}
}

// ScaleDecimalBytes converts a number of bytes, without rounding, to the largest decimal unit that
// divides it: KB, MB, GB or TB. The unit is "" if the number is not a multiple of 1,000.
func ScaleDecimalBytes(n int64) (count int64, unit string) {
	for _, larger := range [...]string{"KB", "MB", "GB", "TB"} {
		if n < 1000 || n%1000 != 0 {
			break
		}
		n, unit = n/1000, larger
	}
	return n, unit
}
