package ingress

import (
	"testing"
	"time"

	"github.com/hookstart/hookstart/shared/webhook"
)

// Every code has an entry in problemsByCode. Without it, a refusal with that code could not be
// written.
func TestEveryCodeHasAResponse(t *testing.T) {
	t.Parallel()
	codes := webhook.Codes()
	for _, code := range codes {
		if p := problemsByCode[code]; p.status < 400 || p.title == "" || p.detail == "" {
			t.Errorf("%s has the response %+v", code, p)
		}
	}
	if len(problemsByCode) != len(codes) {
		t.Errorf("%d responses for %d codes", len(problemsByCode), len(codes))
	}
}

// The Retry-After is rounded up, so a client that waits for that many seconds does not retry too
// early.
func TestWholeSeconds(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]int64{
		1:               1,
		time.Second:     1,
		time.Second + 1: 2,
		time.Hour - 1:   3600,
	} {
		if got := ceilSeconds(d); got != want {
			t.Errorf("%s: %d, want %d", d, got, want)
		}
	}
}
