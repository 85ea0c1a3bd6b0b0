package bus

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// dialTimeout limits a connection attempt to one address. It is short because nats.go holds the
// connection's lock during the attempt.
const dialTimeout = time.Second

// A write fails if, within writeStallTimeout, the network accepts neither minWriteProgress bytes
// nor all of the remaining data. There is no single limit for the whole write: a short one would
// cut off a message of several megabytes on a slow network, and a long one would notice a failed
// host too late.
const (
	writeStallTimeout = maxPings * pingInterval
	minWriteProgress  = 64 << 10
)

// maxSilence is how long a server may send nothing before its host is suspected to have failed. A
// server that works answers a ping every second.
const maxSilence = pingInterval * 3 / 2

// dialer opens connections that detect a failure of the server's host: see conn. It implements
// nats.CustomDialer.
type dialer struct{}

// Dial connects to an address. It fails after dialTimeout.
func (dialer) Dial(network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	raw, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return newConn(raw, writeStallTimeout, maxSilence), nil
}

// conn is a connection that detects a failure of the server's host even though the host has not
// closed the connection. The pings of nats.go cannot detect such a failure while a write blocks:
// they need a lock that the write holds for up to a minute. A conn therefore closes itself if a
// write makes no progress.
//
// If a conn is closed after the server has been silent, it discards the data that the kernel has
// not sent yet. Otherwise, the kernel would send the data when the host came back, long after the
// callers were told that their messages had failed.
type conn struct {
	net.Conn
	stallTimeout, maxSilence time.Duration

	createdAt    time.Time
	lastReceived atomic.Int64 // when the server last sent something: nanoseconds since createdAt
	stalled      atomic.Bool  // a write made too little progress, so Write closed the connection
}

func newConn(raw net.Conn, stallTimeout, maxSilence time.Duration) *conn {
	return &conn{
		Conn: raw, stallTimeout: stallTimeout, maxSilence: maxSilence, createdAt: time.Now(),
	}
}

// Read reads from the connection, and records when the server last sent something.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.lastReceived.Store(int64(time.Since(c.createdAt)))
	}
	return n, err
}

// Write writes all of p. If it makes too little progress, it closes the connection and returns an
// error.
func (c *conn) Write(p []byte) (int, error) {
	written := 0
	for {
		if err := c.Conn.SetWriteDeadline(time.Now().Add(c.stallTimeout)); err != nil {
			return written, err
		}
		n, err := c.Conn.Write(p[written:])
		written += n
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return written, err
		}
		if n < minWriteProgress {
			c.stalled.Store(true)
			_ = c.Close() // nats.go closes it only if a part of p was written
			return written,
				fmt.Errorf("the server accepted %d of %d bytes within %s: %w", n,
					len(p)-written+n, c.stallTimeout, err)
		}
	}
}

// SetWriteDeadline does nothing, because Write sets its own deadlines.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// Close closes the connection. If the server's host seems to have failed (a write has stalled, or
// the server was silent for longer than maxSilence), Close also discards the data that the kernel
// has not sent yet.
func (c *conn) Close() error {
	silence := time.Since(c.createdAt) - time.Duration(c.lastReceived.Load())
	if tcp, ok := c.Conn.(*net.TCPConn); ok && (c.stalled.Load() || silence > c.maxSilence) {
		_ = tcp.SetLinger(0) // fails only if the connection is closed already
	}
	return c.Conn.Close()
}
