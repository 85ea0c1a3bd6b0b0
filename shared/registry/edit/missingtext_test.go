package edit_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/registrytest"
)

// A new leader of the secrets stream may not have applied a token's text yet, although the registry
// already has the token's hash. Editor.Trigger then reads the text again instead of omitting the
// token.
func TestATriggerIsReadAgainUntilItsTokenHasAText(t *testing.T) {
	t.Parallel()
	nc := natstest.Start(t).Connect(t)
	r := registrytest.Start(t, nc)
	r.CreateWorkflow(t, "wf", "free", false)
	kv, err := r.JetStream.KeyValue(t.Context(), registry.SecretsBucket)
	fatal(t, err)
	stored, err := kv.Get(t.Context(), "wf.node")
	fatal(t, err)
	fatal(t, kv.Delete(t.Context(), "wf.node"))
	reads := make(chan *nats.Msg, 100)
	_, err = nc.ChanSubscribe("$JS.API.STREAM.MSG.GET."+registry.StreamOf(registry.SecretsBucket),
		reads)
	fatal(t, err)
	fatal(t, nc.Flush())

	go func() {
		<-reads
		<-reads // a second read: the first one has found no text
		if _, err := kv.Put(t.Context(), "wf.node", stored.Value()); err != nil {
			t.Error(err)
		}
	}()
	info, err := r.Trigger(t.Context(), "wf", "node")
	fatal(t, err)
	if len(info.Tokens) != 1 {
		t.Errorf("%d tokens", len(info.Tokens))
	}
}

// The record with a node's tokens is missing in SecretsBucket. Trigger then returns the node
// without tokens, and RotateToken creates a new token.
func TestATriggerWithoutTextsCanBeRotated(t *testing.T) {
	t.Parallel()
	r := registrytest.Start(t, natstest.Start(t).Connect(t))
	r.CreateWorkflow(t, "wf", "free", false)
	kv, err := r.JetStream.KeyValue(t.Context(), registry.SecretsBucket)
	fatal(t, err)
	fatal(t, kv.Delete(t.Context(), "wf.node"))
	info, err := r.Trigger(t.Context(), "wf", "node")
	fatal(t, err)
	if len(info.Tokens) != 0 {
		t.Errorf("%d tokens, want none", len(info.Tokens))
	}
	fatal(t, r.RotateToken(t.Context(), "wf", "node", time.Hour))
	info, err = r.Trigger(t.Context(), "wf", "node")
	fatal(t, err)
	if len(info.Tokens) != 1 {
		t.Errorf("%d tokens after the rotation, want the new one", len(info.Tokens))
	}
}
