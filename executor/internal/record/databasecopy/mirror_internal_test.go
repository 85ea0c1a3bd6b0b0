package databasecopy

import (
	"context"
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/registry"
)

// onePending is a message whose metadata wrongly says that one more message is pending.
type onePending struct{ jetstream.Msg }

func (onePending) Subject() string      { return registry.SubjectOf(registry.Bucket, "key") }
func (onePending) Data() []byte         { return nil }
func (onePending) Headers() nats.Header { return nil }

func (onePending) Metadata() (*jetstream.MsgMetadata, error) {
	one := jetstream.SequencePair{Consumer: 1, Stream: 1}
	return &jetstream.MsgMetadata{Sequence: one, NumPending: 1}, nil
}

var errForever = errors.New("there is no other message")

// oneMessage is an iterator whose Next method returns one message. After that, Next fails with
// nats.ErrTimeout if the caller has set a time limit. If not, Next would wait forever, so it fails
// with errForever.
type oneMessage struct {
	jetstream.MessagesContext
	delivered bool
}

func (m *oneMessage) Next(opts ...jetstream.NextOpt) (jetstream.Msg, error) {
	switch {
	case !m.delivered:
		m.delivered = true
		return onePending{}, nil
	case len(opts) > 0:
		return nil, nats.ErrTimeout
	default:
		return nil, errForever
	}
}

// saved counts the records that are written to the database's copy.
type saved struct {
	store.RegistryCopy
	records int
}

func (s *saved) SaveRegistryCopy(
	_ context.Context, _ string, records []store.RegistryRecord, _ []store.AuditEntry, _ uint64,
	_ store.RegistryPosition,
) error {
	s.records += len(records)
	return nil
}

// The server sends one revision and wrongly announces another one, which never arrives. The mirror
// writes the first revision to the database without waiting for the second.
func TestARevisionIsCopiedBeforeAnotherOneComes(t *testing.T) {
	t.Parallel()
	s := &saved{}
	c := New(Config{Store: s})
	err := c.copyMessages(t.Context(), registry.Bucket, 0, &oneMessage{})
	if !errors.Is(err, errForever) || s.records != 1 || c.copiedRevisions[registry.Bucket] != 1 {
		t.Errorf("%d records are saved, up to %d: %v", s.records,
			c.copiedRevisions[registry.Bucket], err)
	}
}
