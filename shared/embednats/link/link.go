// Package link provides a TCP proxy between two programs. The proxy can simulate network failures:
// it can hold back all bytes, close connections and refuse new ones.
package link

import (
	"net"
	"strings"
	"sync"
)

// Link forwards TCP connections to its target, except while Silence or Cut is in effect.
type Link struct {
	listener net.Listener
	target   string // host:port, or the path of a Unix socket

	mu      sync.Mutex
	flowing chan struct{} // closed while bytes may flow, open while the link is silent
	broken  bool          // whether connections are refused
	conns   map[net.Conn]struct{}
}

// New returns a Link that listens on a free port of 127.0.0.1 until Close, and forwards each
// connection to the given target: a host:port, or the path of a Unix socket.
func New(target string) (*Link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it does not block
	if err != nil {
		return nil, err
	}
	l := &Link{
		listener: listener,
		target:   target,
		flowing:  make(chan struct{}),
		conns:    map[net.Conn]struct{}{},
	}
	close(l.flowing)
	go l.accept()
	return l, nil
}

// Addr returns the host:port at which the link accepts connections.
func (l *Link) Addr() string { return l.listener.Addr().String() }

// Silence holds back every byte, like a network that loses all packets. The bytes arrive after
// Heal, unless Cut is called first.
func (l *Link) Silence() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flowing = make(chan struct{})
}

// Cut closes all connections, and makes the link refuse new ones until Heal.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = true
	for conn := range l.conns {
		_ = conn.Close()
	}
}

// Heal undoes Silence and Cut: bytes flow again, and new connections are accepted. Connections that
// Cut has closed stay closed.
func (l *Link) Heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = false
	select {
	case <-l.flowing:
	default:
		close(l.flowing)
	}
}

// Close closes the link and all its connections.
func (l *Link) Close() {
	l.Cut()
	l.Heal()
	_ = l.listener.Close()
}

func (l *Link) accept() {
	for {
		from, err := l.listener.Accept()
		if err != nil {
			return // the listener is closed
		}
		go l.forward(from)
	}
}

// forward connects to the target, and copies bytes in both directions between the target and from,
// which is the connection of a client. It returns when copying has ended in both directions.
func (l *Link) forward(from net.Conn) {
	defer func() { _ = from.Close() }()
	l.waitUntilOpen() // while the link is silent, do not connect to the target
	network := "tcp"
	if strings.HasPrefix(l.target, "/") {
		network = "unix"
	}
	to, err := net.Dial(network, l.target) //nolint:noctx // on loopback it does not block
	if err != nil {
		return
	}
	defer func() { _ = to.Close() }()
	if !l.track(from, to) {
		return
	}
	defer l.untrack(from, to)
	done := make(chan struct{})
	go func() {
		l.copy(to, from)
		close(done)
	}()
	l.copy(from, to)
	<-done
}

// copy copies bytes from one connection (from) to the other (to) until either is closed. While the
// link is silent, copy holds the bytes back. When it ends, it closes the write side of the
// destination, so that the program at that end reads EOF. Otherwise, a server would keep the
// session of a client that has gone.
func (l *Link) copy(to, from net.Conn) {
	defer func() {
		if half, ok := to.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		l.waitUntilOpen()
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				_ = from.Close()
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// waitUntilOpen waits while the link is silent.
func (l *Link) waitUntilOpen() {
	l.mu.Lock()
	silent := l.flowing
	l.mu.Unlock()
	<-silent
}

// track registers connections, so that Cut can close them, and returns true. If the link has been
// cut, track registers nothing and returns false.
func (l *Link) track(conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken {
		return false
	}
	for _, conn := range conns {
		l.conns[conn] = struct{}{}
	}
	return true
}

func (l *Link) untrack(conns ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range conns {
		delete(l.conns, conn)
	}
}
