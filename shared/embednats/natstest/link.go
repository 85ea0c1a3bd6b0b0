package natstest

import (
	"strings"
	"testing"

	"github.com/hookstart/hookstart/shared/embednats/link"
)

// Link is a path to a server that can be silenced and cut.
type Link struct{ *link.Link }

// NewLink opens a path to the server for a client whose connection the test will disturb. The link
// is closed when the test ends.
func (n *Node) NewLink(tb testing.TB) Link {
	tb.Helper()
	l, err := link.New(strings.TrimPrefix(n.URL(), "nats://"))
	if err != nil {
		tb.Fatalf("natstest: %v", err)
	}
	tb.Cleanup(l.Close)
	return Link{l}
}

// URL returns the URL for clients.
func (l Link) URL() string { return "nats://" + l.Addr() }

// DropConnections breaks the connections and accepts new ones. Bytes that the link was holding back
// are lost.
func (l Link) DropConnections() {
	l.Cut()
	l.Heal()
}
