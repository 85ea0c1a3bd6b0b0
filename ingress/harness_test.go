package ingress_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/ingress"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/ops/logtest"
	"github.com/hookstart/hookstart/shared/program"
	"github.com/hookstart/hookstart/shared/registry/registrytest"
	"github.com/hookstart/hookstart/shared/registry/seal"
	"github.com/hookstart/hookstart/shared/stream"
)

// fixture is a running ingress, with its NATS server and its registry.
type fixture struct {
	*registrytest.Registry
	t    *testing.T
	nats *natstest.Node
	addr string
	log  *logtest.Buffer
	stop map[string]context.CancelFunc // keyed by the ingress's address

	keyFile string // file with the keys that encrypt secrets
	keys    *seal.Keys
}

func start(t *testing.T, options ...func(*ingress.Config)) *fixture {
	t.Helper()
	server := natstest.Start(t)
	f := &fixture{
		t:       t,
		nats:    server,
		log:     &logtest.Buffer{},
		stop:    map[string]context.CancelFunc{},
		keyFile: filepath.Join(t.TempDir(), "keys"),
	}
	err := os.WriteFile(f.keyFile, []byte(seal.NewKeyLine()+"\n"), 0o600)
	if err == nil {
		f.keys, err = seal.ReadKeyFile(f.keyFile)
	}
	if err != nil {
		t.Fatal(err)
	}
	f.Registry = registrytest.StartWithKeys(t, server.Connect(t), f.keys)
	f.addr = f.startIngress(options...)
	return f
}

// publicURL is the URL that senders use to reach the ingress.
const publicURL = "https://hooks.example.com"

// defaults returns the default configuration, except for the addresses: it listens on free local
// ports and connects to natsURL.
func defaults(tb testing.TB, natsURL string) ingress.Config {
	tb.Helper()
	var c ingress.Config
	if err := program.Parse(&c, "--addr=127.0.0.1:0", "--ops-addr=127.0.0.1:0",
		"--nats-url="+natsURL); err != nil {
		tb.Fatal(err)
	}
	return c
}

// startIngress starts another ingress and returns its address. It stops the ingress at the end of
// the test, and fails the test if Run then returns an error.
func (f *fixture) startIngress(options ...func(*ingress.Config)) string {
	f.t.Helper()
	c := defaults(f.t, f.nats.URL())
	c.SecretsKeyFile, c.PublicURL = f.keyFile, publicURL
	c.Log = logrus.New()
	c.Log.SetOutput(f.log)
	c.Log.SetLevel(logrus.TraceLevel)
	ready := make(chan ingress.ListenAddresses, 1)
	c.OnReady = func(l ingress.ListenAddresses) { ready <- l }
	for _, option := range options {
		option(&c)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- ingress.Run(ctx, c) }()
	f.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			f.t.Errorf("the ingress ended with %v", err)
		}
	})
	select {
	case l := <-ready:
		f.stop[l.Addr] = cancel
		return l.Addr
	case err := <-done:
		done <- err
		f.t.Fatalf("the ingress did not start: %v", err)
		return ""
	}
}

// received is a response as the sender receives it.
type received struct {
	status int
	header http.Header
	body   map[string]any
	raw    string
	close  bool // the connection is closed after the response
}

func (a received) code() string {
	code, _ := a.body["code"].(string)
	return code
}

func (a received) executionID() string {
	id, _ := a.body["executionId"].(string)
	return id
}

// request describes a request that a sender sends. Its zero value is a POST without a token,
// headers or a body.
type request struct {
	method, path, token string
	header              map[string]string
	body                string
	chunked             bool
}

func (f *fixture) send(r request) received {
	f.t.Helper()
	return f.sendTo(f.addr, r)
}

func (f *fixture) sendTo(addr string, r request) received {
	f.t.Helper()
	if r.method == "" {
		r.method = http.MethodPost
	}
	url := "http://" + addr + r.path
	if r.token != "" {
		url += "?token=" + r.token
	}
	var body io.Reader = strings.NewReader(r.body)
	if r.chunked {
		body = io.MultiReader(body) // hides the length
	}
	request, err := http.NewRequestWithContext(f.t.Context(), r.method, url, body)
	if err != nil {
		f.t.Fatal(err)
	}
	for name, value := range r.header {
		request.Header.Set(name, value)
	}
	response, err := http.DefaultTransport.RoundTrip(request) // does not follow redirects
	if err != nil {
		f.t.Fatal(err)
	}
	return f.read(response)
}

func (f *fixture) read(response *http.Response) received {
	f.t.Helper()
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	a := received{
		status: response.StatusCode,
		header: response.Header,
		raw:    string(raw),
		close:  response.Close,
	}
	if strings.HasPrefix(a.raw, "{") &&
		strings.HasSuffix(response.Header.Get("Content-Type"), "json") {
		if err := json.Unmarshal(raw, &a.body); err != nil {
			f.t.Fatalf("%v in %s", err, raw)
		}
	}
	return a
}

// raw writes text to a new connection and reads one response. If half is true, it closes the
// sending side of the connection before it reads.
func (f *fixture) raw(text string, half bool) received {
	f.t.Helper()
	conn, err := net.Dial("tcp", f.addr)
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		f.t.Fatal(err)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		f.t.Fatal(err)
	}
	if half {
		tcp, ok := conn.(*net.TCPConn)
		if !ok || tcp.CloseWrite() != nil {
			f.t.Fatal("the connection cannot be closed by half")
		}
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		f.t.Fatal(err)
	}
	if response.Header.Get("Content-Type") == "text/plain; charset=utf-8" {
		return received{status: response.StatusCode, header: response.Header}
	}
	return f.read(response)
}

// begin sends head, the headers of a request with Expect: 100-continue, and returns once the
// ingress has asked for the body. The function that it returns sends the body and reads the
// response.
func (f *fixture) begin(head string) (finish func(body string) received) {
	f.t.Helper()
	conn, err := net.Dial("tcp", f.addr)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = conn.Close() })
	reader := bufio.NewReader(conn)
	send := func(text string) *http.Response {
		f.t.Helper()
		if _, err := io.WriteString(conn, text); err != nil {
			f.t.Fatal(err)
		}
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			f.t.Fatal(err)
		}
		return response
	}
	if response := send(head); response.StatusCode != http.StatusContinue {
		f.t.Fatal(response.Status)
	}
	return func(body string) received {
		f.t.Helper()
		return f.read(send(body))
	}
}

// messages returns the number of messages in the stream EXECUTIONS.
func (f *fixture) messages() uint64 {
	f.t.Helper()
	s, err := f.JetStream.Stream(f.t.Context(), stream.ExecutionsName)
	if err != nil {
		f.t.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

// last returns the newest message of the stream EXECUTIONS.
func (f *fixture) last() *jetstream.RawStreamMsg {
	f.t.Helper()
	s, err := f.JetStream.Stream(f.t.Context(), stream.ExecutionsName)
	if err != nil {
		f.t.Fatal(err)
	}
	msg, err := s.GetMsg(f.t.Context(), s.CachedInfo().State.LastSeq)
	if err != nil {
		f.t.Fatal(err)
	}
	return msg
}

// lastEvent returns the newest message of EXECUTIONS in decoded form.
func (f *fixture) lastEvent() stream.DecodedMessage {
	f.t.Helper()
	msg := f.last()
	event, err := stream.Decode(msg.Subject, msg.Header, msg.Data)
	if err != nil {
		f.t.Fatal(err)
	}
	return event
}
