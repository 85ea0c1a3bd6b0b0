package target

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/runner"
)

func TestEnvironment(t *testing.T) {
	t.Parallel()
	got := executionEnvironment(runner.Execution{
		Start: execution.Start{
			ID:         "id",
			WorkflowID: "w",
			NodeID:     "n",
			Queue:      "q",
			Source:     execution.SourceWebhook,
			Sender:     "github",
			Verified:   true,
			AcceptedAt: time.Unix(0, 0),
			Headers: execution.Values{
				"X-Two":    {"a", "b"},
				"X_two":    {"c"},
				"X!Two":    {"d"},
				"X_only":   {"e"},
				"Odd-Name": {"()  { :;}; x"},
			},
			Query: execution.Values{
				"zero": {"a\x00b"},
				"Case": {"1"},
				"case": {"2"},
				"long": {strings.Repeat("x", maxVariableBytes+1)},
			},
		},
		Attempt: 2,
	})
	for _, want := range []string{
		"HOOKSTART_EXECUTION_ID=id", "HOOKSTART_SENDER=github", "HOOKSTART_VERIFIED=true",
		"HOOKSTART_ATTEMPT=2", "HOOKSTART_HEADER_X_TWO=a, b",
		"HOOKSTART_HEADER_ODD_NAME=()  { :;}; x",
		"HOOKSTART_QUERY_CASE=1", "HOOKSTART_ACCEPTED_AT=1970-01-01T00:00:00Z",
		`HOOKSTART_HEADERS={"Odd-Name":["()  { :;}; x"],"X!Two":["d"],"X-Two":["a","b"],"X_only":["e"],"X_two":["c"]}`,
	} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is missing in %q", want, got)
		}
	}
	for _, variable := range got {
		name, _, _ := strings.Cut(variable, "=")
		if strings.IndexByte(variable, 0) >= 0 || name == "HOOKSTART_HEADER_X_ONLY" ||
			name == "HOOKSTART_QUERY_LONG" || name == "HOOKSTART_QUERY" ||
			name == "HOOKSTART_DELIVERY_ID" {
			t.Errorf("%.100q cannot be, is ambiguous, or is empty", variable)
		}
	}
}

// A program does not inherit hookstart's credentials.
func TestInherited(t *testing.T) {
	t.Parallel()
	got := InheritedEnv([]string{
		"PATH=/bin", "HOOKSTART_ADMIN_TOKEN=x", "HOOKSTART_HTTP_SECRET=y", "TRACEPARENT=z",
	})
	if !slices.Equal(got, []string{"PATH=/bin"}) {
		t.Error(got)
	}
}
