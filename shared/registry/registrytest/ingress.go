package registrytest

import (
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/ops/logtest"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/consistency"
	"github.com/hookstart/hookstart/shared/registry/seal"
)

// Ingress follows the registry as an ingress does. A test can lock ApplyMu to keep changes from
// being applied.
type Ingress struct {
	*registry.Snapshot
	ApplyMu sync.Mutex
}

// Apply implements consistency.Sink. It blocks while a test holds ApplyMu.
func (i *Ingress) Apply(c registry.Change) {
	i.ApplyMu.Lock()
	defer i.ApplyMu.Unlock()
	i.Snapshot.Apply(c)
}

// StartIngress starts an ingress that follows the registry and announces a MaxBodyBytes of 7. The
// test must stop the returned heartbeat.
func StartIngress(tb testing.TB, nc *nats.Conn) (*Ingress, *consistency.Heartbeat) {
	tb.Helper()
	return StartIngressWithKeys(tb, nc, nil)
}

// StartIngressWithKeys is like StartIngress, but the ingress decrypts senders' secrets with keys.
func StartIngressWithKeys(
	tb testing.TB, nc *nats.Conn, keys *seal.Keys,
) (*Ingress, *consistency.Heartbeat) {
	tb.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		tb.Fatal(err)
	}
	i := &Ingress{Snapshot: registry.NewSnapshot(keys)}
	f, err := consistency.Follow(tb.Context(), js, i, logtest.Discard())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(f.Stop)
	a, err := consistency.StartHeartbeat(tb.Context(), nc, f, consistency.RoleIngress,
		&consistency.IngressSettings{MaxBodyBytes: 7}, consistency.ProcessInfo{
			Capabilities: consistency.Capabilities(),
		}, logtest.Discard())
	if err != nil {
		tb.Fatal(err)
	}
	return i, a
}
