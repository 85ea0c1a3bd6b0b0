package apiserver

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

// request is what started an execution, as the stream still has it.
type request struct {
	payload        execution.Payload // none: the body was not read
	headers, query execution.Values
	expired        bool // the stream has the message no more
}

// request reads an execution's message by its sequence. A stream that cannot be reached
// is an error: it may well have the message.
func (s *server) request(ctx context.Context, r store.Record) (request, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	from, err := s.executionsStream(ctx)
	if err != nil {
		return request{}, err
	}
	msg, err := from.GetMsg(ctx, r.StreamSequence)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return request{expired: true}, nil
	}
	if err != nil {
		return request{}, fmt.Errorf("read message %d: %w", r.StreamSequence, err)
	}
	event, err := stream.Decode(msg.Subject, msg.Header, msg.Data)
	switch {
	case err == nil && event.Start != nil && event.Start.ID == r.ID:
		return request{payload: event.Start.Payload, headers: event.Start.Headers, query: event.Start.Query}, nil
	case err == nil && event.Rejection != nil && event.Rejection.ID == r.ID:
		return request{headers: event.Rejection.Headers, query: event.Rejection.Query}, nil
	default:
		// Another message: the stream was made anew after the record was.
		return request{expired: true}, nil
	}
}

// executionsStream is asked for once, not for each message.
func (s *server) executionsStream(ctx context.Context) (jetstream.Stream, error) {
	if known := s.executions.Load(); known != nil {
		return *known, nil
	}
	found, err := s.JetStream.Stream(ctx, stream.Name)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", stream.Name, err)
	}
	s.executions.Store(&found)
	return found, nil
}
