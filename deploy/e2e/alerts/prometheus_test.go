// Package alerts evaluates the alerting rules with Prometheus's own rule engine on scrapes of
// running programs.
package alerts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/tsdb"
)

// interval is the scrape and evaluation interval in deploy/prometheus/prometheus.yml.
const interval = 15 * time.Second

// target is a program that the simulated Prometheus scrapes: the name of its job, and the URL of
// its metrics.
type target struct{ job, url string }

// prometheus combines the store, the query engine and the rule engine of Prometheus with our rules.
// It has no clock of its own: the tests pass it the time.
type prometheus struct {
	t       *testing.T
	db      *tsdb.DB
	groups  []*rules.Group
	targets []target
}

func newPrometheus(t *testing.T, targets ...target) *prometheus {
	t.Helper()
	db, err := tsdb.Open(t.TempDir(), nil, nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: 10 * time.Second})
	manager := rules.NewManager(&rules.ManagerOptions{
		Appendable: db,
		Queryable:  db,
		QueryFunc:  rules.EngineQueryFunc(engine, db),
		Context:    t.Context(),
		// No notifications are needed: the tests read the alerts from the state of the rules.
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {},
	})
	groups, errs := manager.LoadGroups(interval, labels.EmptyLabels(), "", nil, false,
		"../../prometheus/rules.yml")
	if len(errs) > 0 {
		t.Fatal(errors.Join(errs...))
	}
	p := &prometheus{t: t, db: db, targets: targets}
	for _, group := range groups {
		p.groups = append(p.groups, group)
	}
	return p
}

// scrape scrapes every target and stores the samples with the timestamp at.
func (p *prometheus) scrape(at time.Time) {
	p.t.Helper()
	to := p.db.Appender(p.t.Context())
	for _, from := range p.targets {
		base := labels.FromStrings("job", from.job, "instance", from.url)
		store := func(metric model.Metric, value float64) {
			of := labels.NewBuilder(base)
			for name, value := range metric {
				of.Set(string(name), string(value))
			}
			if _, err := to.Append(0, of.Labels(), at.UnixMilli(), value); err != nil {
				p.t.Fatal(err)
			}
		}
		samples, err := samplesOf(p.t.Context(), from.url)
		up := 1.0
		if err != nil {
			up = 0
		}
		store(model.Metric{model.MetricNameLabel: "up"}, up)
		for _, sample := range samples {
			store(sample.Metric, float64(sample.Value))
		}
	}
	if err := to.Commit(); err != nil {
		p.t.Fatal(err)
	}
}

// samplesOf returns the current samples of a program, with histograms in classic buckets.
func samplesOf(ctx context.Context, url string) (model.Vector, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", string(expfmt.NewFormat(expfmt.TypeProtoDelim)))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, response.Status)
	}
	decoder := expfmt.NewDecoder(response.Body, expfmt.ResponseFormat(response.Header))
	var families []*dto.MetricFamily
	for {
		family := &dto.MetricFamily{}
		if err := decoder.Decode(family); errors.Is(err, io.EOF) {
			return expfmt.ExtractSamples(&expfmt.DecodeOptions{}, families...)
		} else if err != nil {
			return nil, err
		}
		families = append(families, family)
	}
}

// evaluate evaluates all rules for a point in time. The test fails if a rule cannot be evaluated.
func (p *prometheus) evaluate(at time.Time) {
	p.t.Helper()
	for _, group := range p.groups {
		group.Eval(p.t.Context(), at)
		for _, rule := range group.AlertingRules() {
			if err := rule.LastError(); err != nil {
				p.t.Errorf("%s: %v", rule.Name(), err)
			}
		}
	}
}

// firing returns the sorted names of the alerts that are firing.
func (p *prometheus) firing() (names []string) {
	for _, group := range p.groups {
		for _, rule := range group.AlertingRules() {
			if rule.State() == rules.StateFiring {
				names = append(names, rule.Name())
			}
		}
	}
	slices.Sort(names)
	return names
}

// step evaluates the rules and then scrapes, in this order, so that alerts fire as late as they can
// in production.
func (p *prometheus) step(at time.Time) {
	p.t.Helper()
	p.evaluate(at)
	p.scrape(at)
}

// clock is a simulated clock. A test advances it by one evaluation interval at a time.
type clock struct {
	p   *prometheus
	now time.Time
}

// advance scrapes and evaluates at each interval until the clock has advanced by d.
func (c *clock) advance(d time.Duration) {
	c.p.t.Helper()
	for until := c.now.Add(d); c.now.Before(until); c.now = c.now.Add(interval) {
		c.p.step(c.now)
	}
}

// until advances the clock until exactly the given alerts are firing, and returns how long that
// took. The test fails if it takes longer than limit.
func (c *clock) until(limit time.Duration, alerts ...string) time.Duration {
	c.p.t.Helper()
	for from := c.now; ; {
		c.advance(interval)
		took := c.now.Sub(from)
		if slices.Equal(c.p.firing(), alerts) {
			return took
		}
		if took >= limit {
			c.p.t.Fatalf("after %v %v fire, want %v", took, c.p.firing(), alerts)
		}
	}
}
