package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/stream"
)

// scrape holds the metrics that one scrape of a program returned, keyed by name.
type scrape map[string]*dto.MetricFamily

// scraped reads a program's metrics in the protobuf format, which supports native histograms.
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
	return decoded(t, response.Body, expfmt.ResponseFormat(response.Header))
}

// decoded reads metrics in the given format.
func decoded(t *testing.T, from io.Reader, format expfmt.Format) scrape {
	t.Helper()
	decoder := expfmt.NewDecoder(from, format)
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

// secondSite returns the metrics that hookstart reports for a second site. The site is a server
// whose streams mirror those of a first site that does not exist.
func secondSite(t *testing.T) scrape {
	t.Helper()
	server := natstest.Start(t)
	js, err := jetstream.New(server.Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(registry.Streams(), stream.ReportsName, stream.CancellationsStream,
		stream.ProgressName, stream.ExecutionsName) {
		if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
			Name: name,
			Mirror: &jetstream.StreamSource{
				Name: name,
				External: &jetstream.ExternalStream{
					APIPrefix: "COPY.API", DeliverPrefix: "copy.deliver",
				},
			},
		}); err != nil {
			t.Fatal(err)
		}
	}
	output, err := exec.CommandContext(t.Context(), filepath.Join(buildCommandLine(t), "hookstart"),
		"admin", "second-site", "status", "--metrics", "--nats-url="+server.URL()).Output()
	if err != nil {
		t.Fatal(err)
	}
	return decoded(t, bytes.NewReader(output), expfmt.NewFormat(expfmt.TypeTextPlain))
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

// added returns the series that are in now but not in before.
func added(before, now scrape) []string {
	had := map[string]bool{}
	for _, s := range before.series() {
		had[s] = true
	}
	return slices.DeleteFunc(now.series(), func(s string) bool { return had[s] })
}

// labels returns a metric's labels, each with the values that occur in the scrape.
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

// ours returns the sorted names of hookstart's own metrics.
func (s scrape) ours() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s)), func(name string) bool {
		return !strings.HasPrefix(name, "hookstart_")
	})
}
