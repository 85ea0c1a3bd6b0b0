package recorder

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/stream"
)

// Recovering returns the batch that records a message that was quarantined, so that it is no longer
// a dead letter. It fails with stream.ErrUnreadable.
func Recovering(msg *jetstream.RawStreamMsg, now time.Time) (store.Batch, error) {
	event, bodyBytes, err := stream.DecodeBrief(msg.Subject, msg.Header, msg.Data)
	if err != nil {
		return store.Batch{}, err
	}
	e := &entry{
		meta: &jetstream.MsgMetadata{
			Sequence:  jetstream.SequencePair{Stream: msg.Sequence},
			Timestamp: msg.Time,
		},
	}
	e.take(event, bodyBytes, msg.Header, store.Time(now))
	batch := batchOf([]*entry{e})
	batch.Recovered = []store.MessageKey{KeyOf(msg.Sequence, msg.Subject)}
	return batch, nil
}

// KeyOf returns the key of a message by its subject.
func KeyOf(sequence uint64, subject string) store.MessageKey {
	_, queue := stream.PlaceOf(subject)
	return store.MessageKey{
		StreamSequence: sequence, Progress: stream.IsProgress(subject), Queue: queue,
	}
}
