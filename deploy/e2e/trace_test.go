package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/hookstart/hookstart/executor"
	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/ingress"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/ops"
	"github.com/hookstart/hookstart/shared/ops/logtest"
	"github.com/hookstart/hookstart/shared/program"
	"github.com/hookstart/hookstart/shared/runner"
	"github.com/hookstart/hookstart/shared/stream"
)

const (
	senderTrace = "0af7651916cd43dd8448eb211c80319c"
	senderSpan  = "b7ad6b7169203331"
)

// inBackground runs a service in this process. stop stops the service, and checks that it returned
// no error.
func inBackground(t *testing.T, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// traced is an ingress, an executor and a runner in this process, with the spans that they create.
type traced struct {
	t        *testing.T
	nats     *natstest.Node
	spans    *tracetest.InMemoryExporter
	client   *apiclient.Client
	ingress  string
	stopAll  func()
	provider trace.TracerProvider
}

func startTraced(t *testing.T) *traced {
	t.Helper()
	c := &traced{t: t, nats: natstest.Start(t), spans: tracetest.NewInMemoryExporter()}
	c.provider = sdktrace.NewTracerProvider(sdktrace.WithSyncer(c.spans))
	o := ops.New()
	o.TracerProvider = c.provider
	log := logtest.Discard()
	defaults := func(config any, flags ...string) {
		if err := program.Parse(config, flags...); err != nil {
			t.Fatal(err)
		}
	}
	var forExecutor executor.Config
	defaults(&forExecutor, "--addr=127.0.0.1:0", "--nats-url="+c.nats.URL(),
		"--admin-token="+adminToken,
		"--database-url=sqlite:"+filepath.Join(t.TempDir(), "executions.db"))
	executorReady := make(chan string, 1)
	forExecutor.Log, forExecutor.Ops = log, o
	forExecutor.OnReady = func(l executor.ListenAddresses) {
		executorReady <- l.Addr
	}
	stopExecutor := inBackground(t, func(ctx context.Context) error {
		return executor.Run(ctx, forExecutor)
	})
	c.client = apiclient.New("http://"+<-executorReady, adminToken)

	var forIngress ingress.Config
	defaults(&forIngress, "--addr=127.0.0.1:0", "--nats-url="+c.nats.URL())
	ingressReady := make(chan string, 1)
	forIngress.Log, forIngress.Ops, forIngress.OnReady = log, o, func(l ingress.ListenAddresses) {
		ingressReady <- l.Addr
	}
	stopIngress := inBackground(t, func(ctx context.Context) error {
		return ingress.Run(ctx, forIngress)
	})
	c.ingress = "http://" + <-ingressReady

	nc := c.nats.Connect(t)
	stopRunner := inBackground(t, func(ctx context.Context) error {
		options := runner.Options{
			Group:              "group",
			Traces:             c.provider,
			ReportRunningAfter: time.Minute,
		}
		return runner.Run(ctx, nc, options, func(
			ctx context.Context, _ runner.Execution,
		) (any, error) {
			_, span := c.provider.Tracer("a user's").Start(ctx, "handler")
			span.End()
			return "output", nil
		})
	})
	c.stopAll = func() { stopIngress(); stopRunner(); stopExecutor() }
	return c
}

// message returns the message with the given sequence number from the stream of start messages.
func (c *traced) message(sequence uint64) *jetstream.RawStreamMsg {
	c.t.Helper()
	js, err := jetstream.New(c.nats.Connect(c.t))
	if err != nil {
		c.t.Fatal(err)
	}
	s, err := js.Stream(c.t.Context(), stream.ExecutionsName)
	if err != nil {
		c.t.Fatal(err)
	}
	msg, err := s.GetMsg(c.t.Context(), sequence)
	if err != nil {
		c.t.Fatal(err)
	}
	return msg
}

// the returns the only span with the given name and attributes. The test fails if there is none or
// more than one.
func the(
	t *testing.T, spans tracetest.SpanStubs, name string, with ...attribute.KeyValue,
) tracetest.SpanStub {
	t.Helper()
	var found []tracetest.SpanStub
	for _, s := range spans {
		if s.Name == name && !slices.ContainsFunc(with, func(a attribute.KeyValue) bool {
			return !slices.Contains(s.Attributes, a)
		}) {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		var names []string
		for _, s := range spans {
			names = append(names, s.Name)
		}
		t.Fatalf("%d spans %q with %v among %q", len(found), name, with, names)
	}
	return found[0]
}

// One request results in one trace, from the sender through the ingress to the executor's record,
// the runner's handler, and its reports.
func TestOneTraceFromTheSenderToTheHandler(t *testing.T) {
	t.Parallel()
	c := startTraced(t)
	path := makeWorkflow(t, c.client, "traced")
	_, token, _ := strings.Cut(path, "token=")
	a, err := post(t.Context(), c.ingress+path, map[string]string{
		"Traceparent":       "00-" + senderTrace + "-" + senderSpan + "-01",
		"X-Github-Delivery": "1",
		"X-Original-Url":    "https://proxy" + path,
	}, strings.NewReader("{}"))
	if err != nil || a.Status != 200 {
		t.Fatalf("%+v, %v", a, err)
	}
	e := recorded(t, c.client, a.ExecutionID, func(e api.ExecutionDetail) bool {
		return e.Status == "succeeded"
	})
	msg := c.message(e.StreamSequence)
	// Spans must not contain a token, even for requests of strangers.
	for _, r := range []struct{ method, path string }{
		{"POST", "/webhooks/traced?token=wrong-" + token}, {
			"POST", "/webhooks/" + token + "/" + token,
		}, {"GET", path}, {token[:8], path},
	} {
		request, err := http.NewRequestWithContext(t.Context(), r.method, c.ingress+r.path,
			strings.NewReader(token))
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil || response.StatusCode == 200 {
			t.Fatalf("%+v, %v", response, err)
		}
		_ = response.Body.Close()
	}
	// A sender without a valid token cannot choose whether its request is traced, or in which
	// trace. The request's span is in a new trace, and only links to the trace that the request
	// names.
	const strangersTrace = "0123456789abcdef0123456789abcdef"
	if a, err := post(t.Context(), c.ingress+"/webhooks/none?token=wrong", map[string]string{
		"Traceparent": "00-" + strangersTrace + "-" + senderSpan + "-01",
	}, nil); err != nil || a.Status != 404 {
		t.Fatalf("%+v, %v", a, err)
	}
	c.stopAll()

	all := c.spans.GetSpans()
	linked := 0
	for _, s := range all {
		if s.SpanContext.TraceID().String() == strangersTrace ||
			s.Parent.TraceID().String() == strangersTrace {
			t.Errorf("a span in a stranger's trace: %+v", s)
		}
		for _, link := range s.Links {
			if link.SpanContext.TraceID().String() == strangersTrace {
				linked++
			}
		}
	}
	if linked != 1 {
		t.Errorf("%d links to a stranger's span", linked)
	}
	if text := fmt.Sprintf("%+v", all); strings.Contains(text, token) ||
		strings.Contains(text, token[:8]) {
		t.Errorf("the token is in a span: %s", text)
	}
	var spans tracetest.SpanStubs
	for _, s := range all {
		if s.SpanContext.TraceID().String() == senderTrace {
			spans = append(spans, s)
		}
	}
	const start, progress = "executions.start.{queue}.{workflowId}.{nodeId}",
		"executions.progress.{queue}.{workflowId}.{executionId}"
	server := the(t, spans, "POST /webhooks/{workflowId}")
	publish := the(t, spans, "publish "+start)
	record := the(t, spans, "record "+start)
	process := the(t, spans, "process "+start)
	handler := the(t, spans, "handler")
	if server.Parent.SpanID().String() != senderSpan || !server.Parent.IsRemote() ||
		server.SpanKind != trace.SpanKindServer {
		t.Errorf("the ingress's span: %+v", server)
	}
	for name, c := range map[string]struct {
		span   tracetest.SpanStub
		parent tracetest.SpanStub
		kind   trace.SpanKind
	}{
		"publish": {publish, server, trace.SpanKindProducer},
		"record":  {record, publish, trace.SpanKindConsumer},
		"process": {process, publish, trace.SpanKindConsumer},
		"handler": {handler, process, trace.SpanKindInternal},
	} {
		if c.span.Parent.SpanID() != c.parent.SpanContext.SpanID() || c.span.SpanKind != c.kind {
			t.Errorf("%s: %+v is not below %+v", name, c.span, c.parent)
		}
	}
	if got, want := msg.Header.Get("traceparent"),
		"00-"+senderTrace+"-"+publish.SpanContext.SpanID().String()+"-01"; got != want {
		t.Errorf("the message's traceparent is %s, not %s", got, want)
	}
	// The span of each report is a child of the runner's span. Here there is only the report of the
	// success, because the run was too short for any other report.
	reports := 0
	for _, s := range spans {
		if s.Name == "record "+progress && s.Parent.SpanID() == process.SpanContext.SpanID() {
			reports++
		}
	}
	if reports != 1 || len(spans) != 6 {
		t.Errorf("%d reports among %d spans", reports, len(spans))
	}
	for _, want := range []attribute.KeyValue{
		attribute.String("hookstart.execution.id", a.ExecutionID),
		attribute.String("hookstart.workflow.id", "traced"),
		attribute.Int("http.response.status_code", 200),
		attribute.String("http.route", "/webhooks/{workflowId}"),
	} {
		if !slices.Contains(server.Attributes, want) {
			t.Errorf("%v is not in %v", want, server.Attributes)
		}
	}
	// One transaction records messages of many traces. Its span links to the spans that published
	// these messages, and the span of each recorded message links to the span of the transaction.
	transaction := slices.IndexFunc(all, func(s tracetest.SpanStub) bool {
		return s.Name == "record EXECUTIONS" &&
			slices.ContainsFunc(s.Links, func(l sdktrace.Link) bool {
				return l.SpanContext.SpanID() == publish.SpanContext.SpanID()
			})
	})
	if transaction < 0 || len(record.Links) != 1 ||
		record.Links[0].SpanContext.SpanID() != all[transaction].SpanContext.SpanID() {
		t.Errorf("no transaction and %+v name each other", record)
	}
	the(t, all, "POST /webhooks/{workflowId}", attribute.String("hookstart.code", "token_invalid"))
	the(t, all, "POST", attribute.String("hookstart.code", "not_found"))
	the(t, all, "GET", attribute.String("hookstart.code", "method_not_allowed"))
	the(t, all, "HTTP", attribute.String("http.request.method", "_OTHER"))
}

// If a sender does not sample a trace, no program samples it either. The message still carries the
// trace ID of the sender and a new span ID.
func TestASenderThatDoesNotSample(t *testing.T) {
	t.Parallel()
	c := startTraced(t)
	path := makeWorkflow(t, c.client, "quiet")
	var parents []string
	for range 2 {
		a, err := post(t.Context(), c.ingress+path, map[string]string{
			"Traceparent": "00-" + senderTrace + "-" + senderSpan + "-00",
		}, nil)
		if err != nil || a.Status != 200 {
			t.Fatalf("%+v, %v", a, err)
		}
		e := recorded(t, c.client, a.ExecutionID, func(e api.ExecutionDetail) bool {
			return e.Status == "succeeded"
		})
		parents = append(parents, c.message(e.StreamSequence).Header.Get("traceparent"))
	}
	c.stopAll()
	for _, p := range parents {
		if !strings.HasPrefix(p, "00-"+senderTrace+"-") || !strings.HasSuffix(p, "-00") ||
			strings.Contains(p, senderSpan) || parents[0] == parents[1] {
			t.Errorf("traceparents %v", parents)
		}
	}
	if spans := c.spans.GetSpans(); len(spans) != 0 {
		t.Errorf("%+v", spans)
	}
}

// A rerun starts a new trace, which contains the runner's span.
func TestARerunIsTraced(t *testing.T) {
	t.Parallel()
	c := startTraced(t)
	makeWorkflow(t, c.client, "again")
	if _, err := c.client.SetSamplePayload(t.Context(), "again", "node", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	again, err := c.client.RerunTrigger(t.Context(), "again", "node")
	if err != nil {
		t.Fatal(err)
	}
	recorded(t, c.client, again.ExecutionID, func(e api.ExecutionDetail) bool {
		return e.Status == "succeeded"
	})
	c.stopAll()
	const start = "executions.start.{queue}.{workflowId}.{nodeId}"
	spans := c.spans.GetSpans()
	publish, process := the(t, spans, "publish "+start), the(t, spans, "process "+start)
	if publish.Parent.IsValid() || process.Parent.SpanID() != publish.SpanContext.SpanID() {
		t.Errorf("%+v is not below %+v", process, publish)
	}
}

// The programs send their spans to the address in OpenTelemetry's standard environment variables.
// At shutdown, they send the remaining spans. No token appears in the sent data.
func TestSpansAreSentToACollector(t *testing.T) {
	t.Parallel()
	var (
		mu    sync.Mutex
		names = map[string]map[string]bool{} // names of the spans keyed by trace ID
		sent  strings.Builder
	)
	collecting := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var request collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &request)
		}
		if err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", r.URL, err)
		}
		mu.Lock()
		defer mu.Unlock()
		sent.Write(body)
		for _, resource := range request.GetResourceSpans() {
			if service := resource.GetResource().String(); !strings.Contains(service,
				"hookstart-local") {
				t.Errorf("spans of %s", service)
			}
			for _, scope := range resource.GetScopeSpans() {
				for _, span := range scope.GetSpans() {
					id := fmt.Sprintf("%x", span.GetTraceId())
					if names[id] == nil {
						names[id] = map[string]bool{}
					}
					operation, _, _ := strings.Cut(span.GetName(), " ")
					names[id][operation] = true
				}
			}
		}
	}))
	defer collecting.Close()
	l := launchLocalIn(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + collecting.URL}, t.TempDir())
	a, err := post(t.Context(), l.webhook, map[string]string{
		"Traceparent": "00-" + senderTrace + "-" + senderSpan + "-01",
	}, nil)
	if err != nil || a.Status != 200 {
		t.Fatalf("%+v, %v", a, err)
	}
	recorded(t, l.client(), a.ExecutionID, func(e api.ExecutionDetail) bool {
		return e.Status == "succeeded"
	})
	l.Terminate()
	mu.Lock()
	defer mu.Unlock()
	for _, operation := range []string{"POST", "publish", "record", "process"} {
		if !names[senderTrace][operation] {
			t.Errorf("no span %s among %v", operation, names)
		}
	}
	_, token, _ := strings.Cut(l.webhook, "token=")
	if text := sent.String(); strings.Contains(text, token) || strings.Contains(text, adminToken) {
		t.Error("a token was sent to the collector")
	}
}
