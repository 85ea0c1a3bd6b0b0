package signin

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// clock gives f a fake clock and fake delays: the current time of f is *now, and f appends each
// delay to *waited instead of waiting.
func clock(f *FailureThrottle) (now *time.Time, waited *[]time.Duration) {
	now, waited = new(time.Unix(1_000_000_000, 0)), new([]time.Duration)
	f.now = func() time.Time { return *now }
	f.sleep = func(_ context.Context, d time.Duration) { *waited = append(*waited, d) }
	return now, waited
}

func TestFailuresWaitLongerAndLonger(t *testing.T) {
	t.Parallel()
	f := NewFailureThrottle(prometheus.NewRegistry())
	now, waited := clock(f)
	for range undelayedFailures {
		f.CountAndDelay(t.Context(), FailedAtAPI, "192.0.2.1:1000")
	}
	if len(*waited) > 0 {
		t.Fatalf("the first ones waited: %v", *waited)
	}
	for i := range 8 {
		f.CountAndDelay(t.Context(), FailedAtConsole, fmt.Sprintf("192.0.2.1:%d", i))
	}
	want := []int64{100, 200, 400, 800, 1600, 3000, 3000, 3000}
	if len(*waited) != len(want) {
		t.Fatalf("%d of %d had to wait", len(*waited), len(want))
	}
	for i, d := range *waited {
		if d.Milliseconds() != want[i] {
			t.Errorf("the %d. pause is %s, want %d ms", i+1, d, want[i])
		}
	}
	*waited = nil
	f.CountAndDelay(t.Context(), FailedAtAPI, "192.0.2.2:1000")
	if len(*waited) > 0 {
		t.Error("another address had to wait")
	}
	*now = now.Add(failureRetention + time.Second)
	f.CountAndDelay(t.Context(), FailedAtAPI, "192.0.2.1:1000")
	if len(*waited) > 0 {
		t.Error("it is never forgotten")
	}
	if api, console := testutil.ToFloat64(f.count.WithLabelValues(FailedAtAPI)),
		testutil.ToFloat64(f.count.WithLabelValues(FailedAtConsole)); api != undelayedFailures+2 ||
		console != 8 {
		t.Errorf("counted %v at the API and %v at the console", api, console)
	}
	if f.delayedResponses != 0 {
		t.Errorf("%d still wait", f.delayedResponses)
	}
}

// Failures from many sources cannot make the number of stored sources, or the number of responses
// that are delayed at the same time, grow without limit.
func TestFailuresAreBounded(t *testing.T) {
	t.Parallel()
	f := NewFailureThrottle(prometheus.NewRegistry())
	clock(f)
	for i := range maxSources + 1000 {
		f.CountAndDelay(t.Context(), FailedAtAPI,
			fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255))
	}
	if len(f.sources) > maxSources {
		t.Errorf("%d sources", len(f.sources))
	}
	for range undelayedFailures + maxConcurrentDelays + 10 {
		f.countFailure(sourcePrefix("192.0.2.1:1"))
	}
	if f.delayedResponses != maxConcurrentDelays {
		t.Errorf("%d wait", f.delayedResponses)
	}
}

func TestSource(t *testing.T) {
	t.Parallel()
	for remote, want := range map[string]string{
		"192.0.2.1:80": "192.0.2.1/32", "[::ffff:192.0.2.1]:80": "192.0.2.1/32",
		"[2001:db8:1:2:3:4:5:6]:80": "2001:db8:1:2::/64", "[fe80::1%eth0]:80": "fe80::/64",
		"": "invalid Prefix", "@": "invalid Prefix",
	} {
		if got := sourcePrefix(remote).String(); got != want {
			t.Errorf("%q: %s, want %s", remote, got, want)
		}
	}
}
