package edit_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/ops/logtest"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/consistency"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/registry/registrytest"
)

// steps is a JetStream that calls a hook before certain operations, with the operation's name, for
// example "get secrets".
type steps struct {
	jetstream.JetStream
	before func(step string)
}

func (s steps) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	// The editor calls Stream just before it reads a record, so name shows which bucket it reads
	// next.
	if name == registry.StreamOf(registry.SecretsBucket) {
		s.before("get " + registry.SecretsBucket)
	} else {
		s.before("look at " + name)
	}
	return s.JetStream.Stream(ctx, name)
}

func (s steps) KeyValue(ctx context.Context, bucket string) (jetstream.KeyValue, error) {
	kv, err := s.JetStream.KeyValue(ctx, bucket)
	return bucketSteps{kv, s.before}, err
}

// PublishMsg calls the hook before a record of the registry is stored. The editor stores such
// records with PublishMsg because they have an audit entry in a header.
func (s steps) PublishMsg(
	ctx context.Context, msg *nats.Msg, opts ...jetstream.PublishOpt,
) (*jetstream.PubAck, error) {
	if strings.HasPrefix(msg.Subject, "$KV."+registry.Bucket+".") && len(msg.Data) > 0 {
		s.before("create " + registry.Bucket)
	}
	return s.JetStream.PublishMsg(ctx, msg, opts...)
}

type bucketSteps struct {
	jetstream.KeyValue
	before func(step string)
}

func (b bucketSteps) Create(
	ctx context.Context, key string, value []byte, opts ...jetstream.KVCreateOpt,
) (uint64, error) {
	b.before("create " + b.Bucket())
	return b.KeyValue.Create(ctx, key, value, opts...)
}

func (b bucketSteps) Delete(ctx context.Context, key string, opts ...jetstream.KVDeleteOpt) error {
	b.before("delete " + b.Bucket())
	return b.KeyValue.Delete(ctx, key, opts...)
}

// recreated is a test in which one process deletes the workflow wf while another one creates it
// again.
type recreated struct {
	*testing.T
	*registrytest.Registry
}

func startRecreated(t *testing.T) recreated {
	t.Helper()
	r := recreated{t, registrytest.Start(t, natstest.Start(t).Connect(t))}
	r.CreateWorkflow(t, "wf", "free", false)
	return r
}

func (r recreated) editor(
	index *edit.RegistryIndex, follower *consistency.Follower, before func(step string),
) *edit.Editor {
	r.Helper()
	e, err := edit.NewEditor(r.Context(), edit.Config{
		JetStream:     steps{r.JetStream, before},
		RegistryIndex: index, Follower: follower, Lease: r.Lease,
		Membership: r.Membership,
	})
	r.check(err)
	return e
}

func (r recreated) check(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r recreated) create(e *edit.Editor) error {
	_, _, err := e.PutWorkflow(r.Context(), edit.WorkflowSpec{
		ID: "wf", AccountID: "on-free", Name: "wf",
		Triggers: []edit.TriggerSpec{{NodeID: "node", SamplePayload: []byte("1")}},
	})
	return err
}

// hasItsSecrets fails the test unless the node of the recreated workflow has one token and the new
// sample payload.
func (r recreated) hasItsSecrets() {
	r.Helper()
	info, err := r.Trigger(r.Context(), "wf", "node")
	r.check(err)
	if len(info.Tokens) != 1 || string(info.SamplePayload) != "1" {
		r.Errorf("the workflow that came back has %d tokens and the sample payload %q",
			len(info.Tokens), info.SamplePayload)
	}
}

// One process deletes a workflow while another one creates it again. In the end, the new workflow
// has its own token and sample payload. In the first case, the old secrets are deleted when only
// the new token has been stored. In the second case, they are deleted when the new workflow's
// record has been stored as well.
func TestAWorkflowThatComesBackKeepsItsSecrets(t *testing.T) {
	t.Parallel()
	for name, recordFirst := range map[string]bool{
		"deleted before the record is stored": false,
		"deleted after it":                    true,
	} {
		t.Run(name, func(t *testing.T) {
			r := startRecreated(t)
			tokenStored, storeRecord, created := make(chan struct{}), make(chan struct{}),
				make(chan error, 1)
			// The editor publishes the record of the new workflow twice: first on the condition
			// that the key has no revision yet, which NATS refuses, and then on the condition that
			// the deletion is its last revision. So stored must be safe to call twice.
			stored := sync.OnceFunc(func() { close(tokenStored) })
			creating := r.editor(r.RegistryIndex, r.Follower, func(step string) {
				if step == "create "+registry.Bucket {
					stored()
					<-storeRecord
				}
			})
			deleting := r.editor(r.RegistryIndex, r.Follower, func(step string) {
				switch {
				case step == "get "+registry.SecretsBucket:
					go func() { created <- r.create(creating) }()
					<-tokenStored
				case step == "delete "+registry.SecretsBucket && recordFirst:
					close(storeRecord)
					r.check(<-created)
				}
			})
			r.check(deleting.DeleteWorkflow(t.Context(), "wf"))
			if !recordFirst {
				close(storeRecord)
				r.check(<-created)
			}
			r.hasItsSecrets()
		})
	}
}

// heldIndex is an index whose Apply method blocks while a test has locked hold.
type heldIndex struct {
	*edit.RegistryIndex
	hold sync.Mutex
}

func (h *heldIndex) Apply(c registry.Change) {
	h.hold.Lock()
	defer h.hold.Unlock()
	h.RegistryIndex.Apply(c)
}

// One process deletes a workflow and another one creates it again. When the first process is about
// to delete the old secrets, its index does not contain the new workflow yet. The secrets of
// the new workflow must be kept nevertheless.
func TestAWorkflowThatCameBackUnheardKeepsItsSecrets(t *testing.T) {
	t.Parallel()
	r := startRecreated(t)
	late := &heldIndex{RegistryIndex: edit.NewRegistryIndex(nil)}
	release := sync.OnceFunc(late.hold.Unlock)
	holding := false
	before := func(step string) {
		switch {
		case step == "get "+registry.SecretsBucket:
			late.hold.Lock()
			holding = true
			r.check(r.create(r.Editor))
		case holding:
			release() // now the process can learn that the workflow exists again
		}
	}
	follower, err := consistency.Follow(t.Context(), steps{r.JetStream, before}, late,
		logtest.Discard())
	r.check(err)
	t.Cleanup(follower.Stop)
	r.check(follower.CatchUp(t.Context()))
	r.check(r.editor(late.RegistryIndex, follower, before).DeleteWorkflow(t.Context(), "wf"))
	r.hasItsSecrets()
}

// deletionsFail is a JetStream in whose buckets Delete fails with errDeletion for one key.
type deletionsFail struct {
	jetstream.JetStream
	key string
}

var errDeletion = errors.New("the record is not deleted")

func (d deletionsFail) KeyValue(ctx context.Context, bucket string) (jetstream.KeyValue, error) {
	kv, err := d.JetStream.KeyValue(ctx, bucket)
	return bucketDeletionsFail{kv, d.key}, err
}

type bucketDeletionsFail struct {
	jetstream.KeyValue
	key string
}

func (b bucketDeletionsFail) Delete(
	ctx context.Context, key string, opts ...jetstream.KVDeleteOpt,
) error {
	if key == b.key {
		return errDeletion
	}
	return b.KeyValue.Delete(ctx, key, opts...)
}

// If the secrets of one node of a deleted workflow cannot be deleted, the secrets of its other
// nodes are deleted anyway. A new node with the same name does not get the secrets that remained.
func TestSecretsThatAreLeftBehind(t *testing.T) {
	t.Parallel()
	r := startRecreated(t)
	ctx := t.Context()
	spec := edit.WorkflowSpec{
		ID: "wf", AccountID: "on-free", Name: "wf",
		Triggers: []edit.TriggerSpec{
			{NodeID: "node", SamplePayload: []byte("1")},
			{NodeID: "second", SamplePayload: []byte("2")},
		},
	}
	_, _, err := r.PutWorkflow(ctx, spec)
	r.check(err)
	deleting, err := edit.NewEditor(ctx, edit.Config{
		JetStream:     deletionsFail{r.JetStream, "wf.node"},
		RegistryIndex: r.RegistryIndex, Follower: r.Follower, Lease: r.Lease,
		Membership: r.Membership,
	})
	r.check(err)
	if err := deleting.DeleteWorkflow(ctx, "wf"); !errors.Is(err, errDeletion) {
		t.Fatalf("the deletion: %v", err)
	}
	kv, err := r.JetStream.KeyValue(ctx, registry.SecretsBucket)
	r.check(err)
	if _, err := kv.Get(ctx, "wf.second"); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Errorf("the secrets of the second node: %v", err)
	}
	_, _, err = r.PutAccount(ctx, "other", "Another account", "free")
	r.check(err)
	spec.AccountID, spec.Triggers = "other", []edit.TriggerSpec{{NodeID: "node"}}
	_, _, err = r.PutWorkflow(ctx, spec)
	r.check(err)
	info, err := r.Trigger(ctx, "wf", "node")
	r.check(err)
	if info.SamplePayload != nil || len(info.Tokens) != 1 {
		t.Errorf("the new node has %d tokens and the sample payload %q", len(info.Tokens),
			info.SamplePayload)
	}
}

// storesWithNext is a JetStream that delays the first message with the given subject: it reports a
// timeout for that message, and stores it just before the next one with the same subject.
type storesWithNext struct {
	jetstream.JetStream
	subject string
	held    *nats.Msg
	opts    []jetstream.PublishOpt
}

func (s *storesWithNext) PublishMsg(
	ctx context.Context, msg *nats.Msg, opts ...jetstream.PublishOpt,
) (*jetstream.PubAck, error) {
	switch {
	case msg.Subject != s.subject:
	case s.held == nil:
		s.held, s.opts = msg, opts
		return nil, nats.ErrTimeout
	default:
		_, _ = s.JetStream.PublishMsg(ctx, s.held, s.opts...)
	}
	return s.JetStream.PublishMsg(ctx, msg, opts...)
}

// The first call of PutWorkflow times out, and its write of the workflow's record reaches the
// server only during a second call. Whichever call's record is stored, the node ends up with
// exactly one token and its sample payload.
func TestANewWorkflowThatIsStoredLate(t *testing.T) {
	t.Parallel()
	r := startRecreated(t)
	ctx := t.Context()
	js := &storesWithNext{
		JetStream: r.JetStream, subject: registry.SubjectOf(registry.Bucket, "workflow.late"),
	}
	editor, err := edit.NewEditor(ctx, edit.Config{
		JetStream: js, RegistryIndex: r.RegistryIndex, Follower: r.Follower, Lease: r.Lease,
		Membership: r.Membership,
	})
	r.check(err)
	spec := edit.WorkflowSpec{
		ID: "late", AccountID: "on-free", Name: "late",
		Triggers: []edit.TriggerSpec{{NodeID: "node", SamplePayload: []byte("1")}},
	}
	_, _, err = editor.PutWorkflow(ctx, spec)
	if _, unknown := errors.AsType[*edit.OutcomeUnknownError](err); !unknown {
		t.Fatalf("the first call: %v", err)
	}
	_, _, err = editor.PutWorkflow(ctx, spec)
	r.check(err)
	info, err := r.Trigger(ctx, "late", "node")
	r.check(err)
	if len(info.Tokens) != 1 || string(info.SamplePayload) != "1" {
		t.Errorf("the node has %d tokens and the sample payload %q", len(info.Tokens),
			info.SamplePayload)
	}
}
