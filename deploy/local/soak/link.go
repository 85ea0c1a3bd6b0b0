package soak

import (
	"net"
	"strings"
	"sync"
)

// link is the way from one process to another: a proxy that can be cut, and can hang.
type link struct {
	listener net.Listener
	to       string

	mu     sync.Mutex
	silent chan struct{} // closed when bytes may flow; open while the link is silent
	broken bool          // connections are refused
	conns  map[net.Conn]struct{}
}

// newLink listens on a free port and connects to an address, or to the socket at a path.
func newLink(to string) (*link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it does not block
	if err != nil {
		return nil, err
	}
	l := &link{listener: listener, to: to, silent: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	close(l.silent)
	go l.accept()
	return l, nil
}

func (l *link) addr() string { return l.listener.Addr().String() }

// silence stops every byte on its way, as a network does that loses all packets: what
// was sent arrives when it ends.
func (l *link) silence() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silent = make(chan struct{})
}

// cut breaks all connections and refuses new ones.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = true
	for conn := range l.conns {
		_ = conn.Close()
	}
}

// heal ends silence and cut.
func (l *link) heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = false
	select {
	case <-l.silent:
	default:
		close(l.silent)
	}
}

func (l *link) close() {
	l.cut()
	l.heal()
	_ = l.listener.Close()
}

func (l *link) accept() {
	for {
		from, err := l.listener.Accept()
		if err != nil {
			return // closed
		}
		go l.join(from)
	}
}

// join copies between a connection and a new one to the other side.
func (l *link) join(from net.Conn) {
	defer func() { _ = from.Close() }()
	l.pass() // a connection is not even made while the link is silent
	network := "tcp"
	if strings.HasPrefix(l.to, "/") {
		network = "unix"
	}
	to, err := net.Dial(network, l.to) //nolint:noctx // on loopback it does not block
	if err != nil {
		return
	}
	defer func() { _ = to.Close() }()
	if !l.keep(from, to) {
		return
	}
	defer l.drop(from, to)
	done := make(chan struct{})
	go func() {
		l.copy(to, from)
		_ = from.Close()
		close(done)
	}()
	l.copy(from, to)
	_ = to.Close()
	<-done
}

// copy ends when either connection does.
func (l *link) copy(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		l.pass()
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// pass waits until bytes may flow.
func (l *link) pass() {
	l.mu.Lock()
	silent := l.silent
	l.mu.Unlock()
	<-silent
}

func (l *link) keep(conns ...net.Conn) bool {
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

func (l *link) drop(conns ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range conns {
		delete(l.conns, conn)
	}
}
