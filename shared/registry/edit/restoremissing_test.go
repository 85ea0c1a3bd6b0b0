package edit_test

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/edit"
)

// answers is a JetStream that responds to the publications with the elements of left, in order:
// with an error, or with a confirmation if the element is nil.
type answers struct {
	jetstream.JetStream
	left []error
}

func (a *answers) PublishMsgAsync(
	msg *nats.Msg, _ ...jetstream.PublishOpt,
) (jetstream.PubAckFuture, error) {
	f := future{msg: msg, ok: make(chan *jetstream.PubAck, 1), err: make(chan error, 1)}
	if err := a.left[0]; err != nil {
		f.err <- err
	} else {
		f.ok <- &jetstream.PubAck{}
	}
	a.left = a.left[1:]
	return f, nil
}

type future struct {
	msg *nats.Msg
	ok  chan *jetstream.PubAck
	err chan error
}

func (f future) Ok() <-chan *jetstream.PubAck { return f.ok }
func (f future) Err() <-chan error            { return f.err }
func (f future) Msg() *nats.Msg               { return f.msg }

// RestoreMissingRecords publishes a record until the server confirms it or reports that it exists.
// Only a confirmed record counts as stored.
func TestARecordIsRestoredUntilItExists(t *testing.T) {
	t.Parallel()
	inFlight := &jetstream.APIError{ErrorCode: jetstream.JSErrCodeStreamWrongLastSequenceConstant}
	exists := &jetstream.APIError{ErrorCode: jetstream.JSErrCodeStreamWrongLastSequence}
	for name, c := range map[string]struct {
		answers []error
		stored  int
	}{
		"it exists":                       {[]error{exists}, 0},
		"another message does not arrive": {[]error{inFlight, inFlight, nil}, 1},
		"another message arrives":         {[]error{inFlight, exists}, 0},
		"a confirmation is lost":          {[]error{jetstream.ErrAsyncPublishTimeout, exists}, 0},
		"a record is lost":                {[]error{jetstream.ErrAsyncPublishTimeout, nil}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			js := &answers{left: c.answers}
			stored, err := edit.RestoreMissingRecords(t.Context(), js, registry.Bucket,
				[]edit.CopiedRecord{{Key: "key"}})
			if err != nil || stored != c.stored || len(js.left) != 0 {
				t.Errorf("%d stored, %d answers left, %v", stored, len(js.left), err)
			}
		})
	}
}
