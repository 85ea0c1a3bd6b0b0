package bench

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"
)

// TestMain makes the test binary act as one of the programs when it is started under that program's
// name.
func TestMain(m *testing.M) {
	if RunAsRole() {
		return
	}
	os.Exit(m.Run())
}

// RunSpeed measures every variant, even in one short round, and prints the tables.
func TestRun(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	profiles := t.TempDir()
	var names []string
	for _, name := range variantNames {
		switch _, err := exec.LookPath("initdb"); {
		case strings.HasSuffix(name, "-postgres") && err != nil &&
			!strings.Contains(os.Getenv("HOOKSTART_TEST_REQUIRE"), "postgres"):
		default:
			names = append(names, name)
		}
	}
	err := RunSpeed(t.Context(), Speed{
		Rounds:      1,
		Burst:       50 * time.Millisecond,
		OpenRounds:  1,
		OpenBurst:   50 * time.Millisecond,
		OpenRate:    []float64{100, 200},
		OpenShare:   0.1,
		LoadOptions: LoadOptions{Connections: 4, BodyBytes: 1024, Out: &out},
		Workflows:   10,
		Variants:    names,
		Seed:        1,
		Profile:     profiles,
		Chart:       profiles + "/chart.svg",
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	_, tables, _ := strings.Cut(out.String(), "req/s x bare")
	for _, name := range names {
		if strings.Count(tables, "\n"+name+" ") != 4 {
			t.Errorf("no rows of %s:\n%s", name, &out)
		}
	}
	chart, err := os.ReadFile(profiles + "/chart.svg")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.Count(string(chart), ">"+name+"</text>") != 2 {
			t.Errorf("%s is not in both panels:\n%s", name, chart)
		}
	}
	if err := xml.Unmarshal(chart, new(struct{})); err != nil {
		t.Errorf("the chart is no XML: %v", err)
	}
	for _, name := range []string{
		"hookstart-ingress", "hookstart-recording-executor", "hookstart-local-hookstart-local",
	} {
		if info, err := os.Stat(profiles + "/" + name + ".prof"); err != nil || info.Size() == 0 {
			t.Errorf("the profile of %s: %v", name, err)
		}
	}
	merged, err := os.ReadFile(filepath.Join(profiles, mergedProfile))
	if err != nil {
		t.Fatal(err)
	}
	sum, err := profile.ParseData(merged)
	if err != nil {
		t.Fatal(err)
	}
	for _, function := range sum.Function {
		if function.Filename != "" {
			t.Errorf("the merged profile has the path %s", function.Filename)
		}
	}
	for _, mapping := range sum.Mapping {
		if mapping.File != "" {
			t.Errorf("the merged profile has the path %s", mapping.File)
		}
	}
}

// The programs accept requests that vegeta sends, both with a bearer token and with Stripe's
// signature.
func TestVegeta(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	err := RunSpeed(t.Context(), Speed{
		Rounds:      1,
		Burst:       50 * time.Millisecond,
		OpenRounds:  1,
		OpenBurst:   100 * time.Millisecond,
		OpenRate:    []float64{200},
		Vegeta:      true,
		LoadOptions: LoadOptions{Connections: 4, BodyBytes: 1024, Out: &out},
		Workflows:   10,
		Variants:    []string{"hookstart-bearer", "hookstart-stripe"},
		Seed:        1,
		Profile:     t.TempDir(), // with a profile, this test binary acts as all programs
	})
	if err != nil || !strings.Contains(out.String(), "sent by vegeta") {
		t.Errorf("%v\n%s", err, &out)
	}
}

func TestBody(t *testing.T) {
	t.Parallel()
	for _, size := range []int{minBodyBytes, 1024, 1025, maxBodyBytes} {
		if text := jsonBody(size); len(text) != size || !json.Valid([]byte(text)) {
			t.Errorf("%d: %d bytes: %s", size, len(text), text)
		}
	}
}

// parseResponse accepts a complete response that is a 200 for a new delivery, a 429 or a 503, and
// returns its length and status. For an incomplete response it returns 0, and for any other
// response an error.
func TestAnswerLength(t *testing.T) {
	t.Parallel()
	const ok = "HTTP/1.1 200 OK\r\nContent-Length: 16\r\nDate: now\r\n\r\n"
	for text, want := range map[string]int{
		ok + `{"success":true}`: len(ok) + 16,
		ok + `{"success"`:       0,
		ok[:20]:                 0,
		ok + `{"deduplicated"`:  0, // the response is incomplete
	} {
		status := 0
		if want > 0 {
			status = http.StatusOK
		}
		if got, code, err := parseResponse([]byte(text)); got != want || code != status ||
			err != nil {
			t.Errorf("%q: %d, %d, %v", text, got, code, err)
		}
	}
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		text := fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Length: 2\r\n\r\n{}", status,
			http.StatusText(status))
		if got, code, err := parseResponse([]byte(text)); got != len(text) || code != status ||
			err != nil {
			t.Errorf("%d: %d, %d, %v", status, got, code, err)
		}
	}
	for _, text := range []string{
		"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 200 OK\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n" + `{"deduplicated":true`,
	} {
		if _, _, err := parseResponse([]byte(text)); err == nil {
			t.Errorf("%q is taken for a good answer", text)
		}
	}
}

func TestQuartiles(t *testing.T) {
	t.Parallel()
	if got := quartilesOf([]float64{5, 1, 3, 2, 4}); got != (quartiles{2, 3, 4}) {
		t.Errorf("%+v", got)
	}
	if got := quartilesOf([]float64{7}); got != (quartiles{7, 7, 7}) {
		t.Errorf("%+v", got)
	}
}

// Without any latencies, the percentile is NaN. This happens in the other tests: on a busy machine,
// a burst of 50 ms may end before any request is answered.
func TestPercentileOfNone(t *testing.T) {
	t.Parallel()
	if got := durationQuantileMS(nil, 0.99); !math.IsNaN(got) {
		t.Error(got)
	}
}

// Each command that is tested here makes its measurement and prints its table, even with a tiny
// load.
func TestCommands(t *testing.T) {
	t.Parallel()
	load := LoadOptions{Connections: 4, BodyBytes: 512}
	databases := []string{sqlite}
	if _, err := exec.LookPath("initdb"); err == nil {
		databases = append(databases, postgres)
	}
	for name, want := range map[string]struct {
		commands Commands
		pattern  string
	}{
		"recording": {
			Commands{
				Recording: Recording{
					Rate:        100,
					Duration:    400 * time.Millisecond,
					Databases:   databases,
					Sample:      5,
					LoadOptions: load,
				},
			},
			strings.Repeat(`(?s).*: 40 requests in .*\nall +8 .*`, len(databases)),
		},
		"neighbours": {
			Commands{
				Neighbours: Neighbours{
					Rounds:      2,
					Burst:       300 * time.Millisecond,
					Workflows:   5,
					Rate:        20,
					Limit:       10,
					Flood:       20,
					LoadOptions: load,
				},
			},
			// The flooded workflow gets far more requests than its limit of 10 per second. Ten
			// requests are accepted at once, and then one every tenth of a second. All others get a
			// 429.
			`(?s)\nratio, round by round .*429: [1-9]\d `,
		},
		"remembered": {
			Commands{Remembered: DeliveryIDCost{Messages: 50, BodyBytes: 256, Restarts: 1}},
			`(?s)\nnone +\d.*\n50 +\d`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			want.commands.chosenCommand = name
			if err := want.commands.Run(t.Context(), &out); err != nil {
				t.Fatalf("%v\n%s", err, &out)
			}
			if !regexp.MustCompile(want.pattern).Match(out.Bytes()) {
				t.Errorf("not as expected:\n%s", &out)
			}
		})
	}
}

// The NATS servers acknowledge deliveries in each layout of the streams, and the table has a row
// for each layout.
func TestScale(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	measured := Scale{
		Rounds:      1,
		Burst:       500 * time.Millisecond,
		LoadOptions: LoadOptions{Connections: 6, BodyBytes: 256, Out: &out},
	}
	if err := measured.Run(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	if rows := regexp.MustCompile(`(?m)^(one stream|three streams|the same).* [1-9]\d* \(`).
		FindAllString(out.String(), -1); len(rows) != 6 {
		t.Errorf("not every layout has acknowledged deliveries:\n%s", &out)
	}
}

// Run measures the calm queue while the other queue has each kind of trouble. Its table has a row
// for each kind. No request to the calm queue is refused.
func TestIsolation(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	measured := Isolation{
		Rounds:      1,
		LagRounds:   1,
		Burst:       2 * time.Second,
		Rate:        50,
		Flood:       50,
		Frozen:      4,
		Lag:         5000,
		Replicas:    1,
		Seed:        1,
		LoadOptions: LoadOptions{Connections: 16, BodyBytes: 512, Out: &out},
	}
	if err := measured.Run(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	if rows := regexp.MustCompile(`(?m)^(alone|beside .*\w) +1 +\d.*\) +0 +\d+ \(`).
		FindAllString(out.String(), -1); len(rows) != int(numConditions) {
		t.Errorf("not every row has a turn without refusals:\n%s", &out)
	}
	for _, pattern := range []string{
		`(?m)^a full stream: 200: 0, 503: 100;`,
		`(?m)^a frozen leader: 200: \d, 503: \d;`,
	} {
		if !regexp.MustCompile(pattern).Match(out.Bytes()) {
			t.Errorf("no %s:\n%s", pattern, &out)
		}
	}
}
