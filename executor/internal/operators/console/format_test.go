package console

import (
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/webhook"
)

func TestWords(t *testing.T) {
	t.Parallel()
	rate := func(requests, seconds int64) string {
		return rateLimitText(api.RateLimit{Requests: requests, WindowSeconds: seconds})
	}
	for want, got := range map[string]string{
		"0.5 ms":                   formatDuration(500 * time.Microsecond),
		"12 ms":                    formatDuration(12 * time.Millisecond),
		"1.5 s":                    formatDuration(1500 * time.Millisecond),
		"2 min 5 s":                formatDuration(125 * time.Second),
		"3 h 0 min":                formatDuration(3 * time.Hour),
		"1 byte":                   formatSize(1),
		"1,023 bytes":              formatSize(1023),
		"100 KB":                   formatSize(102_400),
		"1.5 MB":                   formatSize(3 << 19),
		"2,500,001 bytes":          formatDecimalBytes(2_500_001),
		"2,500 KB":                 formatDecimalBytes(2_500_000),
		"1,234,567":                formatCount(1_234_567),
		"999":                      formatCount(999),
		"-1,000":                   formatCount(-1000),
		"0 executions":             plural(0, "execution"),
		"60 requests/min":          rate(60, 60),
		"5 requests per 10 s":      rate(5, 10),
		"5 requests per 2 min 0 s": rate(5, 120),
		"1 request/min":            rate(1, 60),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// The map refusalAdvice has a text for every code with which a webhook can refuse a request.
func TestEveryRefusalHasAdvice(t *testing.T) {
	t.Parallel()
	for _, code := range webhook.Codes() {
		if refusalAdvice[code] == "" {
			t.Errorf("no advice on %s", code)
		}
	}
}

func TestSteps(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	names := func(steps []timelineStep) (all string) {
		for _, s := range steps {
			all += s.Name + " "
		}
		return all
	}
	r := operate.Execution{
		Execution: api.Execution{
			Queue:      "q",
			Source:     string(execution.SourceWebhook),
			Status:     string(execution.Succeeded),
			AcceptedAt: at(0),
			RecordedAt: at(9),
			StartedAt:  at(3),
			FinishedAt: at(7),
		},
	}
	// A runner can be faster than the recorder, so "Recorded" can come after "Succeeded" on the
	// timeline.
	known, waiting := timelineSteps(r, at(1))
	if names(known) != "Received Stored Started Succeeded Recorded " || waiting != "" ||
		known[2].After != 2*time.Millisecond {
		t.Errorf("%+v, %q", known, waiting)
	}
	r = operate.Execution{
		Execution: api.Execution{
			Queue:      "q",
			Source:     string(execution.SourceRerun),
			Status:     string(execution.Queued),
			AcceptedAt: at(0),
			RecordedAt: at(9),
		},
	}
	if known, waiting := timelineSteps(r, time.Time{}); names(known) != "Test Recorded " ||
		waiting == "" {
		t.Errorf("%+v, %q", known, waiting)
	}
	r.RerunOf = "another"
	if known, _ := timelineSteps(r, time.Time{}); names(known) != "Run again Recorded " {
		t.Errorf("%+v", known)
	}
	r = operate.Execution{
		Execution: api.Execution{
			Source:     string(execution.SourceWebhook),
			Status:     string(execution.Rejected),
			AcceptedAt: at(0),
			RecordedAt: at(9),
		},
	}
	if known, waiting := timelineSteps(r, at(1)); names(known) != "Received Stored Rejected " ||
		waiting != "" {
		t.Errorf("%+v, %q", known, waiting)
	}
}
