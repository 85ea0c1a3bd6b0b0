package ingress

import (
	"testing"
	"time"
)

// Who comes after that many seconds must not be too early.
func TestWholeSeconds(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]int64{1: 1, time.Second: 1, time.Second + 1: 2, time.Hour - 1: 3600} {
		if got := wholeSeconds(d); got != want {
			t.Errorf("%s: %d, want %d", d, got, want)
		}
	}
}
