// Package proxy provides a TCP proxy between two programs. The proxy can simulate network failures:
// it can hold back all bytes, close connections and refuse new ones.
package proxy

import (
	"net"
	"strings"
	"sync"
)

// Proxy forwards TCP connections to its target, except while Silence or Cut is in effect.
type Proxy struct {
	listener net.Listener
	target   string // host:port, or the path of a Unix socket

	mu      sync.Mutex
	flowing chan struct{} // closed while bytes may flow
	cut     bool          // whether connections are refused
	conns   map[net.Conn]struct{}
}

// New returns a Proxy that listens on a free port of 127.0.0.1 until Close, and forwards each
// connection to the given target: a host:port, or the path of a Unix socket.
func New(target string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it does not block
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		listener: listener,
		target:   target,
		flowing:  make(chan struct{}),
		conns:    map[net.Conn]struct{}{},
	}
	close(p.flowing)
	go p.accept()
	return p, nil
}

// Addr returns the host:port at which the proxy accepts connections.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Silence holds back every byte, like a network that loses all packets. The bytes arrive after
// Heal, unless Cut is called first.
func (p *Proxy) Silence() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flowing = make(chan struct{})
}

// Cut closes all connections, and makes the proxy refuse new ones until Heal.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	for conn := range p.conns {
		_ = conn.Close()
	}
}

// Heal undoes Silence and Cut: bytes flow again, and new connections are accepted. Connections that
// Cut has closed stay closed.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = false
	select {
	case <-p.flowing:
	default:
		close(p.flowing)
	}
}

// Close closes the proxy and all its connections.
func (p *Proxy) Close() {
	p.Cut()
	p.Heal()
	_ = p.listener.Close()
}

func (p *Proxy) accept() {
	for {
		from, err := p.listener.Accept()
		if err != nil {
			return // the listener is closed
		}
		go p.forward(from)
	}
}

// forward connects to the target, and copies bytes in both directions between the target and from,
// which is the connection of a client. It returns when copying has ended in both directions.
func (p *Proxy) forward(from net.Conn) {
	defer func() { _ = from.Close() }()
	p.waitWhileSilent() // while the proxy is silent, do not connect to the target
	network := "tcp"
	if strings.HasPrefix(p.target, "/") {
		network = "unix"
	}
	to, err := net.Dial(network, p.target) //nolint:noctx // on loopback it does not block
	if err != nil {
		return
	}
	defer func() { _ = to.Close() }()
	if !p.track(from, to) {
		return
	}
	defer p.untrack(from, to)
	done := make(chan struct{})
	go func() {
		p.copy(to, from)
		close(done)
	}()
	p.copy(from, to)
	<-done
}

// copy copies bytes from one connection (from) to the other (to) until either is closed. While the
// proxy is silent, copy holds the bytes back. When it ends, it closes the write side of the
// destination, so that the program at that end reads EOF. Otherwise, a server would keep the
// session of a client that has gone.
func (p *Proxy) copy(to, from net.Conn) {
	defer func() {
		if half, ok := to.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		p.waitWhileSilent()
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

// waitWhileSilent waits while the proxy is silent.
func (p *Proxy) waitWhileSilent() {
	p.mu.Lock()
	silent := p.flowing
	p.mu.Unlock()
	<-silent
}

// track registers connections, so that Cut can close them, and returns true. If the proxy has been
// cut, track registers nothing and returns false.
func (p *Proxy) track(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut {
		return false
	}
	for _, conn := range conns {
		p.conns[conn] = struct{}{}
	}
	return true
}

func (p *Proxy) untrack(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		delete(p.conns, conn)
	}
}
