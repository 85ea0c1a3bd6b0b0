package e2e

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// scrape is what Prometheus reads from a program, by metric.
type scrape map[string]*dto.MetricFamily

// scraped reads the metrics of a program in the format that has native histograms.
func scraped(t *testing.T, opsURL string) scrape {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, opsURL+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", string(expfmt.NewFormat(expfmt.TypeProtoDelim)))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	decoder := expfmt.NewDecoder(response.Body, expfmt.ResponseFormat(response.Header))
	found := scrape{}
	for {
		var family dto.MetricFamily
		err := decoder.Decode(&family)
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		found[family.GetName()] = &family
	}
}

// series returns the names of all series in a scrape, with their labels.
func (s scrape) series() []string {
	var all []string
	for name, family := range s {
		for _, m := range family.GetMetric() {
			labels := []string{}
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			all = append(all, name+"{"+strings.Join(labels, ",")+"}")
		}
	}
	slices.Sort(all)
	return all
}

// added returns the series of now that are not in before.
func added(before, now scrape) []string {
	had := map[string]bool{}
	for _, s := range before.series() {
		had[s] = true
	}
	return slices.DeleteFunc(now.series(), func(s string) bool { return had[s] })
}

// labels returns a metric's labels, each with its values in the scrape.
func (s scrape) labels(name string) map[string]map[string]bool {
	found := map[string]map[string]bool{}
	for _, m := range s[name].GetMetric() {
		for _, l := range m.GetLabel() {
			if found[l.GetName()] == nil {
				found[l.GetName()] = map[string]bool{}
			}
			found[l.GetName()][l.GetValue()] = true
		}
	}
	return found
}

// ours returns the names of hookstart's own metrics.
func (s scrape) ours() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s)), func(name string) bool {
		return !strings.HasPrefix(name, "hookstart_")
	})
}
