package e2e

import (
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/tsdb"
	"sigs.k8s.io/yaml"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/executor/apiclient"
)

// stuckWithin is how long after the last runner's end the alert's expression may become true. With 15 s between
// scrapes and 15 s between evaluations (prometheus.yml) the alert then fires within a minute.
const stuckWithin = 30 * time.Second

// When all runners of a queue are killed, the API, the console and the alert say so; they recover by
// themselves when a runner is there again. Prometheus's own engine evaluates the rule over real scrapes.
func TestQueueStuck(t *testing.T) {
	t.Parallel()
	l := launchLocal(t, t.TempDir(), "--log-level=warn")
	path := makeWorkflow(t, l.client(), "killed")
	if _, err := l.client().PutWorkflow(t.Context(), "killed", api.PutWorkflow{
		AccountID: "tests", Name: "killed", Queue: "killed", Triggers: []api.PutTrigger{{NodeID: "node"}},
	}); err != nil {
		t.Fatal(err)
	}
	p := newEvaluator(t, l.ops, alertExpression(t, "QueueStuck"))
	fires := func() bool { return p.fires(t) }
	one, two := launch(t, "test-runner", l.nats, "10ms"), launch(t, "test-runner", l.nats, "10ms")
	one.Await("(ready)")
	two.Await("(ready)")
	within(t, 20*time.Second, "two members", func() bool { return membersOf(t, l.client(), "killed") == 2 })
	if fires() {
		t.Error("the alert fires while runners are there")
	}

	killed := time.Now()
	one.Kill()
	two.Kill()
	a, err := post(t.Context(), l.ingress+path, nil, strings.NewReader("{}"))
	if err != nil || a.status != 200 {
		t.Fatalf("%+v, %v", a, err)
	}
	within(t, stuckWithin, "the alert", fires)
	t.Logf("the alert's expression is true after %v", time.Since(killed).Round(100*time.Millisecond))
	q := queueOf(t, l.client(), "killed")
	if q.Waiting != 1 || q.OldestAcceptedAt.IsZero() || len(q.Groups) != 1 || q.Groups[0].Members != 0 || q.Groups[0].Waiting != 1 ||
		q.Groups[0].LastSeenAt.After(killed.Add(time.Second)) || q.Groups[0].LastSeenAt.Before(killed.Add(-5*time.Second)) {
		t.Errorf("%+v", q)
	}

	launch(t, "test-runner", l.nats, "10ms").Await("(ready)")
	recorded(t, l.client(), a.ExecutionID, func(e api.ExecutionDetail) bool { return e.Status == "succeeded" })
	within(t, stuckWithin, "the alert's end", func() bool { return !fires() })
	within(t, 20*time.Second, "a member", func() bool {
		q := queueOf(t, l.client(), "killed")
		return q.Waiting == 0 && q.OldestAcceptedAt.IsZero() && q.Groups[0].Members == 1
	})
}

// within waits until something holds, for so long.
func within(t *testing.T, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for until := time.Now().Add(limit); !holds(); {
		if time.Now().After(until) {
			t.Fatalf("no %s within %v", what, limit)
		}
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		}
	}
}

func queueOf(t *testing.T, c *apiclient.Client, name string) api.Queue {
	t.Helper()
	list, err := c.Queues(t.Context(), apiclient.Page{})
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range list.Items {
		if q.Queue == name {
			return q
		}
	}
	t.Fatalf("there is no queue %s in %+v", name, list.Items)
	return api.Queue{}
}

func membersOf(t *testing.T, c *apiclient.Client, queue string) (n int) {
	t.Helper()
	for _, g := range queueOf(t, c, queue).Groups {
		n += g.Members
	}
	return n
}

// alertExpression is that of an alert in rules.yml, which must not wait: the test would not see how long.
func alertExpression(t *testing.T, name string) string {
	t.Helper()
	var rules struct {
		Groups []struct {
			Rules []struct{ Alert, Expr, For string }
		}
	}
	if err := yaml.Unmarshal(file(t, "../prometheus/rules.yml"), &rules); err != nil {
		t.Fatal(err)
	}
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			if rule.Alert == name && rule.For == "" {
				return rule.Expr
			}
		}
	}
	t.Fatalf("rules.yml has no alert %s that fires at once", name)
	return ""
}

// evaluator stores what it scrapes of a program, and evaluates an expression over it.
type evaluator struct {
	ops, expression string
	db              *tsdb.DB
	engine          *promql.Engine
}

func newEvaluator(t *testing.T, ops, expression string) *evaluator {
	t.Helper()
	db, err := tsdb.Open(t.TempDir(), nil, nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return &evaluator{ops, expression, db, promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: 10 * time.Second})}
}

// fires scrapes, and says whether the expression finds something.
func (p *evaluator) fires(t *testing.T) bool {
	t.Helper()
	now := time.Now()
	to := p.db.Appender(t.Context())
	for name, family := range scraped(t, p.ops) {
		if family.GetType() != dto.MetricType_GAUGE || !strings.HasPrefix(name, "hookstart_") {
			continue
		}
		for _, m := range family.GetMetric() {
			of := labels.NewBuilder(labels.FromStrings(model.MetricNameLabel, name, "job", "executor", "instance", "local"))
			for _, l := range m.GetLabel() {
				of.Set(l.GetName(), l.GetValue())
			}
			if _, err := to.Append(0, of.Labels(), now.UnixMilli(), m.GetGauge().GetValue()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := to.Commit(); err != nil {
		t.Fatal(err)
	}
	query, err := p.engine.NewInstantQuery(t.Context(), p.db, nil, p.expression, now)
	if err != nil {
		t.Fatal(err)
	}
	defer query.Close()
	result := query.Exec(t.Context())
	found, err := result.Vector()
	if err != nil {
		t.Fatal(err)
	}
	return len(found) > 0
}
