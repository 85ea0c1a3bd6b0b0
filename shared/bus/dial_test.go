package bus

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// Over a slow network, writing a large message may take any amount of time. The write fails only if
// the network accepts less than minWriteProgress within writeStallTimeout.
func TestASlowNetworkIsNotASilentOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		c, ended := newConn(near, writeStallTimeout, maxSilence), make(chan struct{})
		go func() {
			defer close(ended)
			const pause = writeStallTimeout * 3 / 4
			for chunk := make([]byte, 2*minWriteProgress); ; <-time.After(pause) {
				if _, err := io.ReadFull(far, chunk); err != nil {
					return
				}
			}
		}()
		begin := time.Now()
		if _, err := c.Write(make([]byte, 64*minWriteProgress)); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took < 20*writeStallTimeout {
			t.Errorf("the network was not slow: %s", took)
		}
		_ = c.Close()
		<-ended
	})
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		c, ended := newConn(near, writeStallTimeout, maxSilence), make(chan struct{})
		go func() { // takes too few bytes to count as progress
			defer close(ended)
			for chunk := make([]byte, 10); ; <-time.After(time.Millisecond) {
				if _, err := far.Read(chunk); err != nil {
					return
				}
			}
		}()
		begin := time.Now()
		if n, err := c.Write(make([]byte, 64*minWriteProgress)); err == nil ||
			time.Since(begin) > writeStallTimeout {
			t.Errorf("%d bytes within %s: %v", n, time.Since(begin), err)
		}
		<-ended // Write has closed the connection
	})
}

// If a connection is closed because the server was silent or a write was blocked, the data that the
// kernel has not sent yet is discarded.
func TestNothingArrivesAfterTheConnectionWasGivenUp(t *testing.T) {
	t.Parallel()
	for name, stallTimeout := range map[string]time.Duration{
		"blocked": 100 * time.Millisecond,
		"silent":  writeStallTimeout,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = listener.Close() }()
			raw, err := net.Dial("tcp", listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			server, err := listener.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = server.Close() }()
			silence := time.Hour
			data := make([]byte, 32<<20)
			if name == "silent" {
				silence, data = time.Nanosecond, data[:1000]
			}
			c := newConn(raw, stallTimeout, silence)
			if _, err := c.Write(data); (err == nil) != (name == "silent") {
				t.Fatal(err)
			}
			_ = c.Close()
			if _, err := io.Copy(io.Discard, server); err == nil {
				t.Error("the connection ended as if nothing had been lost")
			}
		})
	}
}

// If a connection is closed while the server is not silent, everything that was written arrives.
func TestEverythingArrivesBeforeAnOrderlyEnd(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	nearEnd, err := dialer{}.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nearEnd.Write(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	_ = nearEnd.Close()
	if n, err := io.Copy(io.Discard, server); n != 1000 || err != nil {
		t.Errorf("%d bytes: %v", n, err)
	}
	_ = server.Close()
}
