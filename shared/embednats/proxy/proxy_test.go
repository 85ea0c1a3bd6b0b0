package proxy_test

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/hookstart/hookstart/shared/embednats/proxy"
)

// A proxy forwards bytes. After Silence, it holds them back until Heal. Cut closes its connections,
// and makes it refuse new ones until Heal.
func TestProxy(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = echo.Close() }()
	go func() {
		for {
			conn, err := echo.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn) }()
		}
	}()
	p, err := proxy.New(echo.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	dial := func() net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", p.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	read := func(conn net.Conn, patience time.Duration) error {
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		_, err := conn.Read(make([]byte, 1))
		return err
	}
	ping := func(conn net.Conn, patience time.Duration) error {
		_, err := conn.Write([]byte("x"))
		return errors.Join(err, read(conn, patience))
	}

	conn := dial()
	if err := ping(conn, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	p.Silence()
	if err := ping(conn, 100*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("while it is silent: %v", err)
	}
	p.Heal()
	if err := read(conn, 10*time.Second); err != nil {
		t.Errorf("what was sent in the silence did not come after it: %v", err)
	}
	p.Cut()
	if err := ping(conn, 10*time.Second); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection of before the cut: %v", err)
	}
	if err := ping(dial(), 10*time.Second); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection during the cut: %v", err)
	}
	p.Heal()
	if err := ping(dial(), 10*time.Second); err != nil {
		t.Errorf("after the cut: %v", err)
	}
}

// If the client or the server closes its connection, the other side reads EOF, even if nothing was
// ever sent through the proxy.
func TestLinkForwardsTheEnd(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	p, err := proxy.New(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, clientCloses := range []bool{true, false} {
		closes, reads := pairThrough(t, p, listener)
		if !clientCloses {
			closes, reads = reads, closes
		}
		if err := closes.Close(); err != nil {
			t.Fatal(err)
		}
		_ = reads.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := reads.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("client closes %t: the other side reads %v instead of the end",
				clientCloses, err)
		}
	}
}

// pairThrough returns both ends of a new connection through l to listener.
func pairThrough(t *testing.T, p *proxy.Proxy, listener net.Listener) (client, server net.Conn) {
	t.Helper()
	client, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	server, err = listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return client, server
}
