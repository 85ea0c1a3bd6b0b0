package e2e

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"
)

func file(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// queries checks PromQL expressions against the metrics that the programs actually serve.
type queries struct {
	t      *testing.T
	scrape scrape
	jobs   []string // names of the jobs in prometheus.yml
}

func newQueries(t *testing.T) *queries {
	t.Helper()
	var config struct {
		RuleFiles []string `json:"rule_files"`
		Global    struct {
			Native bool `json:"scrape_native_histograms"`
		} `json:"global"`
		Scrapes []struct {
			Job string `json:"job_name"`
		} `json:"scrape_configs"`
	}
	if err := yaml.Unmarshal(file(t, "../prometheus/prometheus.yml"), &config); err != nil {
		t.Fatal(err)
	}
	if !config.Global.Native || !slices.Equal(config.RuleFiles, []string{"rules.yml"}) {
		t.Errorf("prometheus.yml: %+v", config)
	}
	q := &queries{t: t, scrape: scraped(t, launchLocal(t, t.TempDir()).ops)}
	maps.Copy(q.scrape, secondSite(t))
	for _, s := range config.Scrapes {
		q.jobs = append(q.jobs, s.Job)
	}
	return q
}

// targetLabels holds the labels that Prometheus adds to every series to identify the target that it
// scraped.
var targetLabels = []string{"job", "instance"}

// check parses a PromQL expression, and checks that its metrics, labels and label values exist.
// where says where the expression is from; error messages begin with it.
func (q *queries) check(where, expression string) {
	q.t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(expression)
	if err != nil {
		q.t.Errorf("%s: %v", where, err)
		return
	}
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			q.selector(where, n)
		case *parser.AggregateExpr:
			known := slices.Clone(targetLabels)
			parser.Inspect(n.Expr, func(inner parser.Node, _ []parser.Node) error {
				if s, ok := inner.(*parser.VectorSelector); ok {
					for label := range q.scrape.labels(q.family(s.Name)) {
						known = append(known, label)
					}
					if strings.HasSuffix(s.Name, "_bucket") {
						known = append(known, "le")
					}
				}
				return nil
			})
			for _, label := range n.Grouping {
				if !slices.Contains(known, label) {
					q.t.Errorf("%s: grouped by %s, which none of its metrics has", where, label)
				}
			}
		}
		return nil
	})
}

// family returns the name of the metric that a series belongs to. For a histogram, it removes
// _bucket, _sum or _count from the name of the series.
func (q *queries) family(series string) string {
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if base, ok := strings.CutSuffix(series, suffix); ok &&
			q.scrape[base].GetType() == dto.MetricType_HISTOGRAM {
			return base
		}
	}
	return series
}

func (q *queries) selector(where string, s *parser.VectorSelector) {
	q.t.Helper()
	name := q.family(s.Name)
	if q.scrape[name] == nil && name != "up" {
		q.t.Errorf("%s: there is no metric %s", where, s.Name)
		return
	}
	values := q.scrape.labels(name)
	for _, m := range s.LabelMatchers {
		switch {
		case m.Name == model.MetricNameLabel, m.Name == "instance":
		case m.Name == "job":
			if !slices.ContainsFunc(q.jobs, m.Matches) {
				q.t.Errorf("%s: no job of prometheus.yml is %s", where, m)
			}
		case values[m.Name] == nil:
			q.t.Errorf("%s: %s has no label %s", where, s.Name, m.Name)
		default:
			alternatives := []string{m.Value}
			if m.Type == labels.MatchRegexp || m.Type == labels.MatchNotRegexp {
				alternatives = strings.Split(m.Value, "|")
			}
			for _, one := range alternatives {
				matches := regexp.MustCompile("^(?:" + one + ")$").MatchString
				found := false
				for value := range values[m.Name] {
					found = found || matches(value)
				}
				if !found {
					q.t.Errorf("%s: no %s of %s is %s", where, m.Name, s.Name, one)
				}
			}
		}
	}
}

// Prometheus can load deploy/prometheus/rules.yml, and every metric in it exists. For each alert,
// the runbook explains its meaning, what to check and what to do.
func TestAlerts(t *testing.T) {
	t.Parallel()
	q := newQueries(t)
	var rules struct {
		Groups []struct {
			Name  string `json:"name"`
			Rules []struct {
				Alert       string            `json:"alert"`
				Expr        string            `json:"expr"`
				For         model.Duration    `json:"for"`
				Labels      map[string]string `json:"labels"`
				Annotations map[string]string `json:"annotations"`
			} `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.UnmarshalStrict(file(t, "../prometheus/rules.yml"), &rules); err != nil {
		t.Fatal(err)
	}
	functions := template.FuncMap{}
	for _, name := range []string{"humanize", "humanizeDuration", "humanizePercentage"} {
		functions[name] = func(any) string { return "" }
	}
	entries := map[string]string{} // sections of the runbook, keyed by anchor
	for _, entry := range regexp.MustCompile(`(?m)^## `).Split(string(file(t, "../RUNBOOK.md")),
		-1)[1:] {
		title, text, _ := strings.Cut(entry, "\n")
		entries[strings.ToLower(title)] = text
	}
	const runbook = "https://github.com/hookstart/hookstart/blob/main/deploy/RUNBOOK.md#"
	alerts := 0
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			alerts++
			q.check(rule.Alert, rule.Expr)
			anchor, is := strings.CutPrefix(rule.Annotations["runbook_url"], runbook)
			text, exists := entries[anchor]
			if !is || !exists || anchor != strings.ToLower(rule.Alert) {
				t.Errorf("%s: its runbook is %s", rule.Alert, rule.Annotations["runbook_url"])
			}
			for _, part := range []string{"**Means.** ", "**Look at.** ", "**Do.** "} {
				if !strings.Contains(text, part) {
					t.Errorf("the runbook's %s has no %s", rule.Alert, part)
				}
			}
			if rule.Annotations["summary"] == "" ||
				!slices.Contains([]string{"page", "ticket"}, rule.Labels["severity"]) {
				t.Errorf("%s: %+v", rule.Alert, rule)
			}
			for name, text := range rule.Annotations {
				if _, err := template.New(name).Funcs(functions).Parse("{{$labels := .}}{{$value " +
					":= .}}" + text); err != nil {
					t.Errorf("%s: %v", rule.Alert, err)
				}
			}
			delete(entries, anchor)
		}
	}
	if len(entries) > 0 || alerts < 10 {
		t.Errorf("%d alerts; the runbook has entries for none: %v", alerts, entries)
	}
}

// Grafana can decode the dashboard deploy/grafana/dashboards/hookstart.json. Every metric in it
// exists, and it shows every metric of hookstart.
func TestDashboard(t *testing.T) {
	t.Parallel()
	q := newQueries(t)
	type source struct {
		UID string `json:"uid"`
	}
	var dashboard struct {
		UID    string `json:"uid"`
		Title  string `json:"title"`
		Panels []struct {
			ID         int    `json:"id"`
			Type       string `json:"type"`
			Title      string `json:"title"`
			Datasource source `json:"datasource"`
			Grid       struct{ H, W, X, Y int }
			Targets    []struct {
				RefID string `json:"refId"`
				Expr  string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	text := file(t, "../grafana/dashboards/hookstart.json")
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	var provisioned struct {
		Datasources []source `json:"datasources"`
	}
	if err := yaml.Unmarshal(file(t, "../grafana/datasource.yaml"), &provisioned); err != nil {
		t.Fatal(err)
	}
	ids := map[int]bool{}
	for _, p := range dashboard.Panels {
		if ids[p.ID] {
			t.Errorf("%s has the ID of another panel", p.Title)
		}
		ids[p.ID] = true
		if p.Type == "row" {
			continue
		}
		if len(p.Targets) == 0 || p.Datasource != provisioned.Datasources[0] {
			t.Errorf("%s: %+v", p.Title, p)
		}
		for _, target := range p.Targets {
			q.check(p.Title,
				strings.NewReplacer("$__rate_interval", "5m", "$instance",
					".*").Replace(target.Expr))
		}
	}
	for _, name := range q.scrape.ours() {
		if !bytes.Contains(text, []byte(name)) {
			t.Errorf("%s is on no panel", name)
		}
	}
	if dashboard.UID == "" || dashboard.Title != "hookstart" {
		t.Errorf("%s %s", dashboard.UID, dashboard.Title)
	}
}
