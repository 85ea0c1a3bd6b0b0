package ingress

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// serveSlow starts a server with one workflow, and returns its address and the workflow's token.
// All timeouts are long, except for those that the function shorten lowers in the handler. The
// channel ended receives a value each time a connection has been closed.
func serveSlow(t *testing.T, shorten func(*handler)) (addr, token string, ended <-chan struct{}) {
	t.Helper()
	h, token, _, _, _ := tryHandler(t, alwaysValid{})
	h.maxBody, h.bodyTimeout, h.minBodyRate = 102_400, time.Minute, 1024
	h.bodyRateGracePeriod, h.responseTimeout = time.Minute, time.Minute
	shorten(h)
	server := h.server(h.log)
	closed := make(chan struct{}, 10)
	server.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- struct{}{}
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return listener.Addr().String(), token, closed
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
	return conn
}

// If a long body arrives more slowly than the minimum rate, the ingress stops reading it long
// before the body timeout.
func TestABodyMustKeepUpARate(t *testing.T) {
	t.Parallel()
	for length, begin := range map[string]string{
		"Content-Length: 102400":     "1",
		"Transfer-Encoding: chunked": "8000\r\n" + strings.Repeat("1", initialBodyBuffer+1),
	} {
		addr, token, _ := serveSlow(t, func(h *handler) {
			h.bodyTimeout = time.Hour
			h.bodyRateGracePeriod, h.minBodyRate = 10*time.Millisecond, 1<<30
		})
		conn := dial(t, addr)
		_, _ = io.WriteString(conn,
			"POST /webhooks/wf?token="+token+" HTTP/1.1\r\nHost: x\r\n"+length+"\r\n\r\n"+begin)
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: %v", length, err)
		}
		text, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if response.StatusCode != http.StatusBadRequest ||
			!strings.Contains(string(text), `"body_unreadable"`) {
			t.Errorf("%s: %s %s", length, response.Status, text)
		}
	}
}

// If a refusal announces that the connection will be closed, the ingress closes it even if the
// client sends no body and keeps the connection open.
func TestARefusalEndsASilentConnection(t *testing.T) {
	t.Parallel()
	for name, rest := range map[string]string{
		"too long":                        "Content-Length: 102401\r\n",
		"waits for 100 Continue":          "Content-Length: 1\r\nExpect: 100-continue\r\n",
		"waits for 100 Continue, chunked": "Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr, _, ended := serveSlow(t, func(h *handler) {
				h.bodyTimeout = 100 * time.Millisecond
			})
			conn := dial(t, addr)
			_, _ = io.WriteString(conn,
				"POST /webhooks/wf?token=x HTTP/1.1\r\nHost: x\r\n"+rest+"\r\n")
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			if response.StatusCode < 400 || !response.Close {
				t.Errorf("%s, closes: %t", response.Status, response.Close)
			}
			select {
			case <-ended:
			case <-time.After(time.Minute):
				t.Error("the connection is still open")
			}
		})
	}
}

func TestHowLongABodyMayTake(t *testing.T) {
	t.Parallel()
	h := &handler{
		bodyTimeout: 30 * time.Second, minBodyRate: 1024,
		bodyRateGracePeriod: 5 * time.Second,
	}
	for _, c := range []struct {
		declared int64
		read     int
		want     time.Duration
	}{
		{10, 0, 30 * time.Second},
		{initialBodyBuffer, 1, 30 * time.Second},
		{initialBodyBuffer + 1, 0, 5 * time.Second},
		{-1, 0, 30 * time.Second},
		{-1, initialBodyBuffer - 1, 30 * time.Second},
		{-1, initialBodyBuffer, 21 * time.Second},
		{-1, 20 << 10, 25 * time.Second},
		{102_400, 10 << 10, 15 * time.Second},
		{102_400, 100 << 10, 30 * time.Second},
	} {
		if got := h.bodyTimeLimit(c.declared, c.read); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	h.minBodyRate = 0
	if got := h.bodyTimeLimit(102_400, 0); got != h.bodyTimeout {
		t.Errorf("without a rate: %v", got)
	}
}

// The ingress disconnects a client that sends requests but never reads a response.
func TestAnswersAreNotWaitedForForEver(t *testing.T) {
	t.Parallel()
	addr, _, ended := serveSlow(t, func(h *handler) { h.responseTimeout = 50 * time.Millisecond })
	conn := dial(t, addr)
	requests := strings.Repeat("POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 1000)
	go func() {
		for {
			if _, err := io.WriteString(conn, requests); err != nil {
				return
			}
		}
	}()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the connection is still there")
	}
}

// If a slow body delays the response, the client still has the full time to read the response.
func TestALateAnswerIsRead(t *testing.T) {
	t.Parallel()
	addr, token, _ := serveSlow(t, func(h *handler) { h.responseTimeout = 2 * time.Second })
	conn := dial(t, addr)
	reader := bufio.NewReader(conn)
	for range 2 {
		_, _ = io.WriteString(conn,
			"POST /webhooks/wf?token="+token+
				" HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n")
		if response, err := http.ReadResponse(reader, nil); err != nil ||
			response.StatusCode != http.StatusContinue {
			t.Fatal(response, err)
		}
		// Wait longer than the write deadline, which is counted from when the headers were read.
		<-time.After(2200 * time.Millisecond)
		_, _ = io.WriteString(conn, "1")
		response, err := http.ReadResponse(reader, nil)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatal(response, err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
	}
}
