package bus_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hookstart/hookstart/shared/bus"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/ops/logtest"
)

func TestConnectWaitsForTheServer(t *testing.T) {
	server := natstest.Start(t)
	server.Stop()
	connected := make(chan error, 1)
	go func() {
		nc, err := bus.Connect(t.Context(), bus.Options{
			URL:            server.URL() + ",",
			ConnectTimeout: 20 * time.Second,
			Log:            logtest.Discard(),
		})
		if err == nil {
			nc.Close()
		}
		connected <- err
	}()
	server.Restart()
	if err := <-connected; err != nil {
		t.Error(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := bus.Connect(ctx, bus.Options{
		URL:            "nats://me:secret@127.0.0.1:1,nats://127.0.0.1:2",
		ConnectTimeout: time.Second,
		Log:            logtest.Discard(),
	})
	if err == nil || strings.Contains(err.Error(), "secret") ||
		!strings.Contains(err.Error(), "nats://127.0.0.1:1,nats://127.0.0.1:2") {
		t.Errorf("%v", err)
	}
}

// lines is an io.Writer that passes the lines of a log to the test.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// If no server is available, Connect logs exactly once which server it is waiting for.
func TestConnectSaysWhatItWaitsFor(t *testing.T) {
	server := natstest.Start(t)
	server.Stop()
	log, logged, connected := logtest.Discard(), make(lines, 100), make(chan error, 1)
	log.SetOutput(logged)
	address := strings.TrimPrefix(server.URL(), "nats://")
	go func() {
		nc, err := bus.Connect(t.Context(), bus.Options{
			URL:            "nats://me:secret@" + address,
			ConnectTimeout: time.Minute,
			Log:            log,
		})
		if err == nil {
			nc.Close()
		}
		connected <- err
	}()
	select {
	case line := <-logged:
		if !strings.Contains(line, "waiting for NATS at nats://"+address) ||
			strings.Contains(line, "secret") {
			t.Error(line)
		}
	case err := <-connected:
		t.Fatalf("it logged nothing: %v", err)
	}
	server.Restart()
	if err := <-connected; err != nil {
		t.Error(err)
	}
	if len(logged) > 0 {
		t.Errorf("a second line: %s", <-logged)
	}
}

// If the first attempt takes longer than ConnectTimeout, because the server accepts the connection
// but sends nothing, Connect fails without another attempt.
func TestConnectEndsAfterItsTimeout(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var tries atomic.Int32
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			tries.Add(1)
			defer func() { _ = conn.Close() }()
		}
	}()
	defer func() { _ = listener.Close() }()
	_, err = bus.Connect(t.Context(), bus.Options{
		URL:            "nats://" + listener.Addr().String(),
		ConnectTimeout: time.Millisecond,
		Log:            logtest.Discard(),
	})
	if err == nil || tries.Load() != 1 {
		t.Errorf("%d tries: %v", tries.Load(), err)
	}
}

// A credentials file or CA file that is empty or missing is reported immediately, without an
// attempt to connect.
func TestBadFilesAreNotWaitedFor(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, o := range []bus.Options{
		{CAFile: empty}, {CAFile: empty + "-not"}, {CredsFile: empty}, {CredsFile: empty + "-not"},
	} {
		o.URL, o.ConnectTimeout, o.Log = "nats://127.0.0.1:1", time.Hour, logtest.Discard()
		if _, err := bus.Connect(t.Context(), o); err == nil ||
			!strings.Contains(err.Error(), empty) || !strings.HasPrefix(err.Error(), "--nats-c") {
			t.Errorf("%v", err)
		}
	}
}

func TestWrongURLsAreNotWaitedFor(t *testing.T) {
	for _, wrong := range []string{
		"", " ", "nats://", ",", "nats://user:geheim@:4222", "127.0.0.1:port",
		"nats://user:geheim@h:99999", "nats://user:geheim@a b",
	} {
		_, err := bus.Connect(t.Context(), bus.Options{
			URL:            wrong,
			ConnectTimeout: time.Hour,
			Log:            logtest.Discard(),
		})
		if err == nil || !strings.HasPrefix(err.Error(), "--nats-url: ") ||
			strings.Contains(err.Error(), "geheim") {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

// If a message could not be published because the server was down, it is not stored later, when the
// server is back.
func TestNothingIsKeptForLater(t *testing.T) {
	server := natstest.Start(t)
	lost := make(chan struct{}, 1)
	nc, err := bus.Connect(t.Context(), bus.Options{
		URL:            server.URL(),
		ConnectTimeout: 20 * time.Second,
		Log:            logtest.Discard(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	changed := nc.StatusChanged(nats.RECONNECTING)
	go func() { <-changed; lost <- struct{}{} }()
	server.Stop()
	<-lost
	if err := nc.Publish("x", nil); err == nil {
		t.Error("a message was taken while the server was away")
	}
	changed = nc.StatusChanged(nats.CONNECTED)
	server.Restart()
	<-changed
	if err := nc.Publish("x", nil); err != nil {
		t.Error(err)
	}
}

// If the server's host fails while so much is published that the kernel's buffers fill up, the
// connection is lost within seconds. Publishing then fails instead of blocking.
func TestAServerThatGoesSilentUnderLoad(t *testing.T) {
	t.Parallel()
	link := natstest.Start(t).NewProxy(t)
	nc, err := bus.Connect(t.Context(), bus.Options{
		URL:            link.URL(),
		ConnectTimeout: 20 * time.Second,
		Log:            logtest.Discard(),
	})
	if err != nil {
		t.Fatal(err)
	}
	lost, failed := nc.StatusChanged(nats.RECONNECTING), make(chan struct{})
	link.Silence()
	go func() {
		defer close(failed)
		for data := make([]byte, 100<<10); nc.Publish("x", data) == nil; {
		}
	}()
	timeout := time.After(20 * time.Second)
	select {
	case <-failed:
	case <-timeout:
		t.Fatal("a message is still waiting for the server")
	}
	select {
	case <-lost:
	case <-timeout:
		t.Fatal("the connection still waits for the server")
	}
	nc.Close()
}

// If the server reports an error that nats.go does not recognize, the connection is closed for
// good. Options.OnClosed is called once, with the reason, and the readiness check fails. If the
// program itself calls Close, Options.OnClosed is not called.
func TestClosedForGood(t *testing.T) {
	server := natstest.Start(t)
	closed := make(chan error, 2)
	connect := func() *nats.Conn {
		nc, err := bus.Connect(t.Context(),
			bus.Options{
				URL: server.URL(), ConnectTimeout: 20 * time.Second, Log: logtest.Discard(),
				OnClosed: func(err error) {
					closed <- err
				},
			})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	own := connect()
	over := own.StatusChanged(nats.CLOSED)
	own.Close()
	<-over
	nc := connect()
	if err := nc.Publish(strings.Repeat("x", 5000), nil); err != nil {
		// Publish must not fail: it is the server that refuses the subject, which is longer than
		// its max_control_line.
		t.Fatal(err)
	}
	if err := <-closed; !errors.Is(err, bus.ErrClosed) || !errors.Is(err, nc.LastError()) ||
		!strings.Contains(strings.ToLower(err.Error()), "control line") {
		t.Errorf("%v", err)
	}
	if err := bus.Check("NATS", nc).Probe(t.Context()); !errors.Is(err, bus.ErrClosed) {
		t.Errorf("readiness: %v", err)
	}
	if len(closed) != 0 {
		t.Errorf("its own Close was reported: %v", <-closed)
	}
}

func TestRedactURLs(t *testing.T) {
	for urls, want := range map[string]string{
		"nats://a:b@h:1, h2:2":  "nats://h:1,h2:2",
		"nats://token@h":        "nats://h",
		"a:b@h:1":               "h:1",
		"nats://a:%zz@h:1":      "h:1",
		"tls://h:1,nats://h2:2": "tls://h:1,nats://h2:2",
	} {
		if got := bus.RedactURLs(urls); got != want {
			t.Errorf("%s: %s, want %s", urls, got, want)
		}
	}
}

// If a server's host fails, it does not close its connections. The client detects that the server
// no longer answers pings, and connects to the next server in its list.
func TestALostHostIsLeft(t *testing.T) {
	server := natstest.Start(t)
	link := server.NewProxy(t)
	nc, err := bus.Connect(t.Context(), bus.Options{
		URL: link.URL() + "," + server.URL(), ConnectTimeout: 20 * time.Second,
		Log:   logtest.Discard(),
		Extra: []nats.Option{nats.DontRandomize(), nats.IgnoreDiscoveredServers()},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	changed := nc.StatusChanged(nats.CONNECTED)
	link.Silence()
	select {
	case <-changed:
	case <-time.After(time.Minute):
		t.Fatal("it still waits for the lost host")
	}
	if url := nc.ConnectedUrl(); url != server.URL() {
		t.Errorf("connected to %s", url)
	}
}
