package natstest

import (
	"strings"
	"testing"

	"github.com/hookstart/hookstart/shared/embednats/proxy"
)

// Proxy is a proxy in front of a server. A test can silence and cut the connections through it.
type Proxy struct{ *proxy.Proxy }

// NewProxy starts a proxy in front of the server, for clients whose connections the test silences
// or cuts. The proxy is closed when the test ends.
func (n *Node) NewProxy(tb testing.TB) Proxy {
	tb.Helper()
	p, err := proxy.New(strings.TrimPrefix(n.URL(), "nats://"))
	if err != nil {
		tb.Fatalf("natstest: %v", err)
	}
	tb.Cleanup(p.Close)
	return Proxy{p}
}

// URL returns the URL with which clients connect through the proxy.
func (p Proxy) URL() string { return "nats://" + p.Addr() }

// DropConnections breaks the existing connections, and immediately accepts new ones. Bytes that the
// proxy was holding back are lost.
func (p Proxy) DropConnections() {
	p.Cut()
	p.Heal()
}
