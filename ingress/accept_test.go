package ingress_test

import (
	"bufio"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/ingress"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/stream"
	"github.com/hookstart/hookstart/shared/webhook"
)

func TestAcceptedRequestIsOnTheStreamAsSent(t *testing.T) {
	t.Parallel()
	s := startSituations(t)
	body := " {\"a\":\"<&>\"}\r\n"
	a := s.send(request{
		path: "/webhooks/active?x=1&token=" + s.token["active"] +
			"&x=2&%zz=%FF&sig=a%2Bb+c&;semi=1&token=other&to%6ben=third&u=/?token=" +
			s.token["active"],
		body: body,
		header: map[string]string{
			"Content-Type":         "application/json; charset=utf-8",
			"X-GitHub-Event":       "push",
			"Authorization":        "Bearer secret",
			"Cookie":               "a=b",
			"Proxy-Authorization":  "Basic x",
			"X-Gitlab-Token":       "secret",
			"X-Goog-Channel-Token": "secret",
			"X-Latin":              "caf\xe9",
			"X-Original-Url":       "https://proxy/webhooks/active?token=" + s.token["active"],
			"Traceparent":          "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		},
	})
	if a.status != 200 || a.header.Get("Content-Type") != "application/json" || len(a.body) != 2 ||
		a.body["success"] != true {
		t.Fatalf("%+v", a)
	}
	if id := a.header.Get(webhook.HeaderExecutionID); id != a.executionID() {
		t.Errorf("header %q, body %q", id, a.executionID())
	}
	msg := s.last()
	if msg.Subject != "executions.start.default.active.node" {
		t.Errorf("subject %s", msg.Subject)
	}
	for name, want := range map[string]string{
		"Hookstart-Execution-Id": a.executionID(),
		"Hookstart-Workflow-Id":  "active",
		"Hookstart-Node-Id":      "node",
		"Content-Type":           "application/protobuf",
		jetstream.MsgIDHeader:    "",
	} {
		if got := msg.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	trace := msg.Header.Get("traceparent")
	if !strings.HasPrefix(trace, "00-0af7651916cd43dd8448eb211c80319c-") ||
		!strings.HasSuffix(trace, "-01") || strings.Contains(trace, "b7ad6b7169203331") {
		t.Errorf("traceparent %s", trace)
	}
	if strings.Contains(string(msg.Data), s.token["active"]) {
		t.Error("the token is in the message")
	}
	start := s.lastEvent().Start
	if string(start.Payload.Body) != body || string(start.Payload.WorkflowInput()) != body ||
		start.Source != execution.SourceWebhook || start.AccountID != "pro" {
		t.Errorf("%+v", start)
	}
	if diff := cmp.Diff(execution.Values{
		"x":     {"1", "2"},
		"%zz":   {"%FF"},
		"sig":   {"a+b c"},
		";semi": {"1"},
		"u":     {"/?token=[token]"},
	}, start.Query); diff != "" {
		t.Error(diff)
	}
	want := execution.Values{
		"Content-Type":    {"application/json; charset=utf-8"},
		"X-Github-Event":  {"push"},
		"X-Latin":         {"café"},
		"X-Original-Url":  {"https://proxy/webhooks/active?token=[token]"},
		"Host":            {s.addr},
		"Content-Length":  {"14"},
		"Traceparent":     {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		"User-Agent":      {"Go-http-client/1.1"},
		"Accept-Encoding": {"gzip"},
	}
	if diff := cmp.Diff(want, start.Headers); diff != "" {
		t.Error(diff)
	}
	if start.TokenID != registry.HashToken(s.token["active"]).ID() {
		t.Errorf("token ID %s", start.TokenID)
	}
}

// The token is in neither a start message nor a rejection, even if the request also contains it in
// other places.
func TestTheTokenIsInNoMessage(t *testing.T) {
	t.Parallel()
	s := startSituations(t)
	for _, workflow := range []string{"active", "inactive"} {
		token := s.token[workflow]
		echo := "POST /webhooks/" + workflow + "?token=" + token + "&a=" + token + "&b=x" + token +
			"x&" + token + "=c HTTP/1.1\r\nHost: " + token +
			"\r\nContent-Type: " + token + "\r\nX-Webhook-Delivery-Id: " + token +
			"\r\nX-Other: <" + token + ">\r\nContent-Length: 0\r\n\r\n"
		first, again := s.raw(echo, false), s.raw(echo, false)
		if first.executionID() == "" || first.executionID() != again.executionID() {
			t.Errorf("%s: %s, %s", workflow, first.raw, again.raw)
		}
		if data := string(s.last().Data); !strings.Contains(data, "[token]") ||
			strings.Contains(data, token) {
			t.Errorf("%s: %q", workflow, data)
		}
	}
}

func TestBodies(t *testing.T) {
	t.Parallel()
	s := startSituations(t)
	deep := strings.Repeat("[", 51_200) + strings.Repeat("]", 51_200)
	for _, c := range []struct {
		name, contentType, body, input string
		chunked                        bool
	}{
		{
			"exactly the limit", "text/plain", strings.Repeat("x", 102_400),
			`{"body":"` + strings.Repeat("x", 102_400) + `"}`, false,
		},
		{
			"exactly the limit, chunked", "text/plain", strings.Repeat("x", 102_400),
			`{"body":"` + strings.Repeat("x", 102_400) + `"}`, true,
		},
		{"deep JSON", "application/json", deep, deep, false},
		{"bare value", "APPLICATION/JSON;;x=\"", "1", "1", true},
		{"empty", "", "", `{"body":""}`, false},
		{"form", "application/x-www-form-urlencoded", "a=1&b=2", `{"body":"a=1\u0026b=2"}`, false},
		{
			"binary", "application/octet-stream", "\xff\xfe",
			`{"body":"//4=","bodyEncoding":"base64"}`, false,
		},
		{"not quite JSON's type", "application/json-seq", "{", `{"body":"{"}`, false},
		{"two types", "text/plain, application/json", "{", `{"body":"{"}`, false},
	} {
		r := request{body: c.body, chunked: c.chunked, header: map[string]string{}}
		if c.contentType != "" {
			r.header["Content-Type"] = c.contentType
		}
		a := s.to("active", r)
		if a.status != 200 {
			t.Errorf("%s: %d %s", c.name, a.status, a.raw)
			continue
		}
		start := s.lastEvent().Start
		if start.ID != a.executionID() || string(start.Payload.Body) != c.body ||
			string(start.Payload.WorkflowInput()) != c.input {
			t.Errorf("%s: input %.100s", c.name, start.Payload.WorkflowInput())
		}
	}
}

func TestDeliveryIDs(t *testing.T) {
	t.Parallel()
	s := startSituations(t)
	send := func(headers ...string) received {
		r := request{header: map[string]string{}}
		for i := 0; i < len(headers); i += 2 {
			r.header[headers[i]] = headers[i+1]
		}
		return s.to("active", r)
	}
	first := send("X-Webhook-Delivery-Id", "a", "X-Partner-Delivery", "b")
	for name, a := range map[string]received{
		"same header":                 send("x-webhook-delivery-id", "a"),
		"another header, the same ID": send("X-GitHub-Delivery", "a"),
		"an empty one counts as absent": send("X-Webhook-Delivery-Id", "", "X-Partner-Delivery", "",
			"Webhook-Id", "a"),
	} {
		if a.executionID() != first.executionID() || a.body["deduplicated"] != true {
			t.Errorf("%s: %+v", name, a)
		}
	}
	for _, header := range append(webhook.DefaultDeliveryIDHeaders(), "X-Partner-Delivery") {
		if a := send(header, "of "+header); a.body["deduplicated"] != nil ||
			s.lastEvent().Start.DeliveryID != "of "+header {
			t.Errorf("%s: %+v", header, a)
		}
	}
	for _, header := range []string{
		"X-Gitlab-Webhook-UUID", "X-Gitlab-Event-UUID", "X-Hook-UUID", "X-Request-Id",
	} {
		if one, two := send(header, "of the hook"),
			send(header, "of the hook"); one.executionID() == two.executionID() {
			t.Errorf("%s does not name a delivery, but was taken for its ID", header)
		}
	}
	if a := send("X-Webhook-Delivery-Id", "A"); a.executionID() == first.executionID() {
		t.Error("IDs are compared without case")
	}
	if one, two := send(), send(); one.executionID() == two.executionID() {
		t.Error("requests without an ID are deduplicated")
	}
	longest := send("X-Webhook-Delivery-Id", strings.Repeat("é", 127)+"x")
	if longest.status != 200 {
		t.Errorf("255 bytes: %+v", longest)
	}
	if a := send("X-Webhook-Delivery-Id", "\xe9"); a.status != 200 ||
		s.lastEvent().Start.DeliveryID != "é" {
		t.Errorf("not UTF-8: %+v", a)
	}
	if a := s.to("once",
		request{header: map[string]string{"X-Webhook-Delivery-Id": "a"}}); a.executionID() ==
		first.executionID() {
		t.Error("two workflows share a delivery ID")
	}

	// After a restart of NATS, a repeat of an earlier delivery is still recognized.
	s.nats.Restart()
	var a received
	retry.Until(t.Context(), 20*time.Millisecond, func() bool {
		a = send("X-Webhook-Delivery-Id", "a")
		return a.status != 503 // until the ingress has connected again
	})
	if a.executionID() != first.executionID() || a.body["deduplicated"] != true {
		t.Errorf("after a restart: %+v", a)
	}
}

func TestConcurrentRepeatsOverTwoIngresses(t *testing.T) {
	t.Parallel()
	s := startSituations(t)
	addrs := []string{s.addr, s.startIngress()}
	before := s.messages()
	s.workflow("busy", "pro", true, &registry.RateLimit{Requests: 1_000_000, Window: time.Second})
	const rounds, repeats = 100, 16
	for round := range rounds {
		responses := make([]received, repeats)
		var wg sync.WaitGroup
		for n := range responses {
			wg.Go(func() {
				responses[n] = s.sendTo(addrs[n%2], request{
					path: "/webhooks/busy", token: s.token["busy"],
					header: map[string]string{
						"X-GitHub-Delivery": hex.EncodeToString([]byte{byte(round)}),
					},
				})
			})
		}
		wg.Wait()
		originals := 0
		for _, a := range responses {
			if a.status != 200 || a.executionID() != responses[0].executionID() {
				t.Fatalf("%+v", a)
			}
			if a.body["deduplicated"] == nil {
				originals++
			}
		}
		if originals != 1 {
			t.Fatalf("round %d: %d responses without deduplicated", round, originals)
		}
	}
	if n := s.messages() - before; n != rounds {
		t.Errorf("%d messages for %d deliveries", n, rounds)
	}
}

func TestSuppressedRepeatsAreReported(t *testing.T) {
	t.Parallel()
	s := startSituations(t)
	r := request{header: map[string]string{"Webhook-Id": "1"}}
	id := s.to("active", r).executionID()
	s.to("active", r)
	s.to("active", r)
	consumer, err := s.JetStream.OrderedConsumer(t.Context(), stream.ReportsName,
		jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	total := int64(0)
	for total < 2 {
		msg, err := consumer.Next()
		if err != nil {
			t.Fatal(err)
		}
		_, _, counts, err := stream.DecodeDuplicates(msg.Data())
		if err != nil {
			t.Fatal(err)
		}
		total += counts[id]
	}
	if total != 2 {
		t.Errorf("%d repeats", total)
	}
}

func TestHeadersOfOtherBytesAreRefused(t *testing.T) {
	t.Parallel()
	s := startSituations(t)
	if a := s.raw(s.head("/webhooks/active", s.token["active"], "Content-Length: 0", "X-\xe9: 1"),
		false); a.status != 400 {
		t.Errorf("%+v", a)
	}
}

func TestHeadersHaveBounds(t *testing.T) {
	t.Parallel()
	s := startSituations(t)
	request := func(size int) string {
		head := s.head("/webhooks/active", s.token["active"], "Content-Length: 0", "X-Fill: ")
		return strings.Replace(head, "X-Fill: ", "X-Fill: "+strings.Repeat("x", size-len(head)), 1)
	}
	if a := s.raw(request(32<<10), false); a.status != 200 {
		t.Errorf("32 KB: %d", a.status)
	}
	if a := s.raw(request(32<<10+1), false); a.status != 431 {
		t.Errorf("one byte more: %d", a.status)
	}
}

func TestHeadersThatDoNotComeEndTheConnection(t *testing.T) {
	t.Parallel()
	s := startSituations(t)
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, "POST /webhooks/active HTTP/1.1\r\nHost: test\r\n")
	if _, err := io.ReadAll(conn); err != nil { // returns when the server closes the connection
		t.Error(err)
	}
}

func TestABodyThatIsTooLargeIsNotAskedFor(t *testing.T) {
	t.Parallel()
	s := startSituations(t)
	a := s.raw(s.head("/webhooks/active", s.token["active"], "Content-Length: 102401",
		"Expect: 100-continue"), false)
	s.expect("too large, and not asked for", a, 413, "body_too_large")
}

func TestRunSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	f := start(t)
	for name, c := range map[string]struct {
		change func(*ingress.Config)
		want   string
	}{
		"port in use": {func(c *ingress.Config) { c.Addr = f.addr }, "--addr"},
		"no NATS": {func(c *ingress.Config) {
			c.NATSURL = "nats://user:geheim@127.0.0.1:1"
			c.ConnectTimeout = time.Millisecond
		}, "cannot reach NATS at nats://127.0.0.1:1 "},
		"TLS by half": {func(c *ingress.Config) { c.TLSCert = "x" }, "--tls-key"},
		"no certificate": {func(c *ingress.Config) {
			c.TLSCert, c.TLSKey = os.DevNull, os.DevNull
		}, "--tls-cert"},
		"bad URL": {func(c *ingress.Config) {
			c.PublicURL = "hooks.example.com"
		}, "--public-url"},
		"no limit": {func(c *ingress.Config) { c.MaxBodyBytes = 0 }, "--max-body-bytes"},
		"no header": {func(c *ingress.Config) {
			c.DeliveryIDHeaders = []string{"X-Id", "X Id"}
		}, `--delivery-id-headers: "X Id"`},
		"payload": {func(c *ingress.Config) {
			c.MaxBodyBytes, c.MaxBufferedBytes = 1<<20, 1<<20
		}, "max_payload"},
	} {
		var config ingress.Config
		config.Addr, config.OpsAddr, config.NATSURL = "127.0.0.1:0", "127.0.0.1:0", f.nats.URL()
		config.ConnectTimeout, config.PublishTimeout = time.Second, time.Second
		config.BodyTimeout, config.ShutdownTimeout = 1, 1
		config.MaxBodyBytes, config.MaxBufferedBytes = 1, 1
		config.MaxInFlight, config.MaxWaiting = 1, 1
		config.LogLevel = "error"
		c.change(&config)
		err := ingress.Run(t.Context(), config)
		if err == nil || !strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// If the ingress refuses a request without reading its long body, the response announces that the
// connection will be closed.
func TestALongBodyThatIsRefusedEndsTheConnection(t *testing.T) {
	t.Parallel()
	s := startSituations(t)
	a := s.raw(s.head("/webhooks", "", "Content-Length: 262145"), false)
	s.expect("2", a, 400, "workflow_id_missing")
	if !a.close {
		t.Errorf("%v", a.header)
	}
}

func TestAConnectionGoesOnAfterARefusal(t *testing.T) {
	t.Parallel()
	s := startSituations(t)
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	reader := bufio.NewReader(conn)
	post := func(token, body string, want int) {
		t.Helper()
		head := s.head("/webhooks/active", token, "Content-Length: "+strconv.Itoa(len(body)))
		if _, err := io.WriteString(conn, head+body[:len(body)/2]); err != nil {
			t.Fatal(err)
		}
		if want != 200 { // the response does not wait for the rest of the body
			if _, err := reader.Peek(1); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := io.WriteString(conn, body[len(body)/2:]); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		if a := s.read(response); a.status != want || a.close {
			t.Errorf("%+v", a)
		}
	}
	for range 20 {
		post("hst_x", strings.Repeat("POST / HTTP/1.1\r\n\r\n", 1000), 403)
		post(s.token["active"], "x", 200)
	}
}

// The deadline for reading a body applies only to that body: after it has passed, the connection
// can still be used for further requests.
func TestABodyThatWasInTime(t *testing.T) {
	t.Parallel()
	s := startSituations(t, func(c *ingress.Config) { c.BodyTimeout = time.Nanosecond })
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	reader := bufio.NewReader(conn)
	for range 2 {
		if _, err := io.WriteString(conn,
			s.head("/webhooks/active", s.token["active"], "Content-Length: 1")+"x"); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		if a := s.read(response); a.status != 200 {
			t.Errorf("%+v", a)
		}
	}
}

// When the ingress shuts down, it stops accepting connections, but still responds to the requests
// in flight.
func TestWhatIsInFlightIsFinished(t *testing.T) {
	t.Parallel()
	s := startSituations(t)
	finish := s.begin(s.head("/webhooks/active", s.token["active"], "Content-Length: 1",
		"Expect: 100-continue"))
	s.stop[s.addr]()
	for {
		another, err := net.Dial("tcp", s.addr)
		if err != nil {
			break
		}
		_ = another.Close()
	}
	if a := finish("x"); a.status != 200 || string(s.lastEvent().Start.Payload.Body) != "x" {
		t.Errorf("%+v", a)
	}
}
