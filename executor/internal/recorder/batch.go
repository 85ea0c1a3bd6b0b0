package recorder

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

// batch is what messages say, and which of them said what.
type batch struct {
	store.Batch
	starts     int
	progressOf map[jetstream.Msg]string // message → execution ID
	withID     int                      // reports with a Nats-Msg-Id
	unreadable map[jetstream.Msg]string // message → reason

	// The message behind each entry of New and Progress: what is put aside names it.
	origins []origin
}

type origin struct {
	sequence uint64
	subject  string
}

func decode(messages []jetstream.Msg, now time.Time) *batch {
	now = now.UTC().Truncate(time.Microsecond)
	b := &batch{progressOf: map[jetstream.Msg]string{}, unreadable: map[jetstream.Msg]string{}}
	var ofProgress []origin
	for _, msg := range messages {
		meta, err := msg.Metadata()
		if err != nil {
			continue // not from the stream
		}
		from := origin{meta.Sequence.Stream, msg.Subject()}
		event, err := stream.Decode(msg.Subject(), msg.Headers(), msg.Data())
		switch {
		case err != nil:
			b.unreadable[msg] = err.Error()
			b.Unreadable = append(b.Unreadable, store.Unreadable{
				StreamSequence: from.sequence, Subject: from.subject, Reason: err.Error(), At: meta.Timestamp.UTC().Truncate(time.Microsecond),
			})
		case event.Start != nil:
			b.starts++
			b.New = append(b.New, queued(event.Start, meta, now))
			b.origins = append(b.origins, from)
		case event.Rejection != nil:
			b.New = append(b.New, rejected(event.Rejection, meta, now))
			b.origins = append(b.origins, from)
		case event.Progress != nil:
			b.progressOf[msg] = event.Progress.ID
			if len(msg.Headers()[jetstream.MsgIDHeader]) > 0 {
				b.withID++
			}
			p := *event.Progress
			p.At = orElse(p.At, meta.Timestamp)
			b.Progress = append(b.Progress, p)
			ofProgress = append(ofProgress, from)
		}
	}
	b.origins = append(b.origins, ofProgress...)
	return b
}

func queued(s *execution.Start, meta *jetstream.MsgMetadata, now time.Time) store.Record {
	return store.Record{
		ID:             s.ID,
		AccountID:      s.AccountID,
		WorkflowID:     s.WorkflowID,
		NodeID:         s.NodeID,
		Queue:          s.Queue,
		Source:         s.Source,
		Status:         execution.Queued,
		DeliveryID:     s.DeliveryID,
		RerunOf:        s.RerunOf,
		TokenID:        s.TokenID,
		AcceptedAt:     orElse(s.AcceptedAt, meta.Timestamp),
		RecordedAt:     now,
		ContentType:    s.Payload.ContentType,
		BodyBytes:      int64(len(s.Payload.Body)),
		StreamSequence: meta.Sequence.Stream,
	}
}

func rejected(r *execution.Rejection, meta *jetstream.MsgMetadata, now time.Time) store.Record {
	return store.Record{
		ID:             r.ID,
		AccountID:      r.AccountID,
		WorkflowID:     r.WorkflowID,
		NodeID:         r.NodeID,
		Queue:          r.Queue,
		Source:         execution.Webhook,
		Status:         execution.Rejected,
		DeliveryID:     r.DeliveryID,
		TokenID:        r.TokenID,
		AcceptedAt:     orElse(r.At, meta.Timestamp),
		RecordedAt:     now,
		ContentType:    r.ContentType,
		BodyBytes:      r.DeclaredSize,
		StreamSequence: meta.Sequence.Stream,
		Error:          r.Code,
	}
}

// orElse is the message's own time, or that of the server when it has none.
func orElse(own, stored time.Time) time.Time {
	if own.IsZero() {
		own = stored
	}
	return own.UTC().Truncate(time.Microsecond)
}

// split makes one batch of each entry.
func (b *batch) split() []*batch {
	var list []*batch
	for i, record := range b.New {
		list = append(list, &batch{Batch: store.Batch{New: []store.Record{record}}, origins: b.origins[i : i+1]})
	}
	for i, progress := range b.Progress {
		at := len(b.New) + i
		list = append(list, &batch{Batch: store.Batch{Progress: []execution.Progress{progress}}, origins: b.origins[at : at+1]})
	}
	for _, u := range b.Unreadable {
		list = append(list, &batch{Batch: store.Batch{Unreadable: []store.Unreadable{u}}, origins: []origin{{u.StreamSequence, u.Subject}}})
	}
	return list
}

// aside is what is kept of a batch of one entry that the database refuses.
func (b *batch) aside(why error) store.Unreadable {
	return store.Unreadable{
		StreamSequence: b.origins[0].sequence, Subject: b.origins[0].subject,
		Reason: "the database refuses it: " + why.Error(), At: time.Now().UTC().Truncate(time.Microsecond),
	}
}
