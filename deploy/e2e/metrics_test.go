package e2e

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/shared/ops"
	"github.com/hookstart/hookstart/shared/ops/logtest"
)

// After the start of the program, no request adds a metric series, whether it comes from a stranger
// or from a sender. Otherwise strangers could make the metrics grow without limit.
func TestNoRequestAddsASeries(t *testing.T) {
	t.Parallel()
	l := launchLocal(t, t.TempDir())
	before := scraped(t, l.ops)
	client := l.client()
	base, token, _ := strings.Cut(l.webhook, "?token=")
	send := func(method, url string, header map[string]string, body string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, url,
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range header {
			request.Header.Set(name, value)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
	}
	var last string
	for n := range 40 {
		id := fmt.Sprintf("wf-%d", n)
		path := makeWorkflow(t, client, id)
		a, err := post(t.Context(), l.ingress+path, map[string]string{
			"X-GitHub-Delivery": id,
			"User-Agent":        "agent-" + id,
			"Content-Type":      "application/x-" + id,
			"X-" + id:           id,
		}, strings.NewReader(id))
		if err != nil || a.Status != 200 {
			t.Fatalf("%+v, %v", a, err)
		}
		last = a.ExecutionID
		for _, url := range []string{l.ingress + path, base + "?token=" + token} {
			// At the new workflow's URL, this request repeats the delivery above. At the demo
			// workflow's URL, it is a new delivery and starts an execution.
			send("POST", url, map[string]string{"X-GitHub-Delivery": id}, "{}")
		}
		send("POST", base+"?token=wrong-"+id, nil, "")
		send("POST", l.ingress+"/webhooks/none-"+id+"?token=x", nil, "")
		send("POST", l.ingress+path+"&"+id+"="+id, map[string]string{
			"Content-Type": "application/json",
		}, "{"+id)
		send("GET", l.ingress+"/"+id+"/"+id, nil, "")
		send("METHOD"+fmt.Sprint(n), l.ingress+path, nil, "")
		send("METHOD"+fmt.Sprint(n), l.executor+"/api/v1/"+id, nil, "")
		send("GET", l.executor+"/"+id, nil, "")
		send("GET", l.ops+"/"+id, nil, "")
		if n%2 == 0 {
			if _, err := client.Deactivate(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			send("POST", l.ingress+path, map[string]string{"X-GitHub-Delivery": "other-" + id},
				"{}")
		}
	}
	recorded(t, client, last, func(api.ExecutionDetail) bool { return true })
	now := scraped(t, l.ops)
	more := slices.DeleteFunc(added(before, now), func(series string) bool {
		// The series that describe queues appear once the executor has checked the queues for the
		// first time. They do not result from a request.
		return strings.HasPrefix(series, "hookstart_executor_queue_")
	})
	if len(more) > 0 {
		t.Errorf("%d series more than at the start:\n%s", len(more), strings.Join(more, "\n"))
	}
	// Check that the requests were counted at all. Otherwise the test would prove nothing.
	for _, code := range []string{
		"", "token_invalid", "workflow_not_found", "method_not_allowed", "not_found",
		"json_invalid", "workflow_inactive",
	} {
		counted := slices.ContainsFunc(now["hookstart_ingress_requests_total"].GetMetric(), func(
			m *dto.Metric,
		) bool {
			return m.GetCounter().GetValue() >= 20 &&
				slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool {
					return l.GetName() == "code" && l.GetValue() == code
				})
		})
		if !counted {
			t.Errorf("%q was not counted", code)
		}
	}
}

// The check in TestNoRequestAddsASeries detects a label whose value comes from a request.
func TestALabelOfARequestIsSeen(t *testing.T) {
	t.Parallel()
	o := ops.New()
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "requests_total",
		Help: "By workflow: too many.",
	}, []string{"workflow"})
	o.Metrics.MustRegister(requests)
	addr, stop, err := o.StartServer(t.Context(), "127.0.0.1:0", logtest.Discard())
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	before := scraped(t, "http://"+addr)
	requests.WithLabelValues("wf-1").Inc()
	requests.WithLabelValues("wf-2").Inc()
	want := []string{`requests_total{workflow="wf-1"}`, `requests_total{workflow="wf-2"}`}
	if diff := cmp.Diff(want, added(before, scraped(t, "http://"+addr))); diff != "" {
		t.Error(diff)
	}
}

// documented returns the metrics in the table of deploy/prometheus/README.md: the type and the
// labels of each, keyed by name.
func documented(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../prometheus/README.md")
	if err != nil {
		t.Fatal(err)
	}
	metrics := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(hookstart_\\w+)` \\| (\\w+) \\| ([^|]*)\\| "+
		".+ \\|$").FindAllStringSubmatch(string(text), -1) {
		labels := regexp.MustCompile(`\w+`).FindAllString(m[3], -1)
		slices.Sort(labels)
		metrics[m[1]] = m[2] + " " + strings.Join(labels, ",")
	}
	return metrics
}

// The table in deploy/prometheus/README.md lists every metric, with its type and labels. All
// metrics have a help text and follow the naming rules in the same document.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	l := launchLocal(t, t.TempDir())
	s := scraped(t, l.ops)
	maps.Copy(s, secondSite(t))
	have, want := map[string]string{}, documented(t)
	for _, name := range s.ours() {
		family := s[name]
		have[name] = strings.ToLower(family.GetType().String()) + " " +
			strings.Join(slices.Sorted(maps.Keys(s.labels(name))), ",")

		unit := regexp.MustCompile(`_(seconds|bytes|messages)$`).MatchString(name)
		total := strings.HasSuffix(name, "_total")
		if counter := family.GetType() == dto.MetricType_COUNTER; counter != total {
			t.Errorf("%s is a %s: a counter, and nothing else, ends in _total", name,
				family.GetType())
		}
		if family.GetType() == dto.MetricType_HISTOGRAM &&
			(!unit || family.GetMetric()[0].GetHistogram().Schema == nil) {
			t.Errorf("the histogram %s has no unit, or is no native one", name)
		}
		if !regexp.MustCompile(`^hookstart_(ingress|executor|runner|second_site|build)_[a-z_]+$`).
			MatchString(name) || family.GetHelp() == "" {
			t.Errorf("%s: %q", name, family.GetHelp())
		}
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("the table of deploy/prometheus/README.md (-) and what is served (+):\n%s", diff)
	}
}
