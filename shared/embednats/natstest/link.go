package natstest

import (
	"strings"
	"testing"

	"github.com/hookstart/hookstart/shared/embednats/link"
)

// Link is a proxy in front of a server. A test can silence and cut the connections through it.
type Link struct{ *link.Link }

// NewLink starts a proxy in front of the server, for clients whose connections the test silences or
// cuts. The link is closed when the test ends.
func (n *Node) NewLink(tb testing.TB) Link {
	tb.Helper()
	l, err := link.New(strings.TrimPrefix(n.URL(), "nats://"))
	if err != nil {
		tb.Fatalf("natstest: %v", err)
	}
	tb.Cleanup(l.Close)
	return Link{l}
}

// URL returns the URL with which clients connect through the link.
func (l Link) URL() string { return "nats://" + l.Addr() }

// DropConnections breaks the existing connections, and immediately accepts new ones. Bytes that the
// link was holding back are lost.
func (l Link) DropConnections() {
	l.Cut()
	l.Heal()
}
