package recorder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/registry/consistency"
)

// errNoMajority means that the server that answers for a stream does not reach a majority of its
// replicas, so that its answers may be out of date.
var errNoMajority = errors.New("the stream's leader does not reach a majority of its replicas")

// errNotStored means that a stream has no message at a sequence, by the word of its leader.
var errNotStored = errors.New("the stream has no such message")

// getMessage returns the message at a sequence of a stream, or errNotStored. Any replica may answer
// that it has the message. Only the leader may answer that there is none: a replica that catches up
// after a partition has not received the newest messages.
func (r *Recorder) getMessage(
	ctx context.Context, s jetstream.Stream, sequence uint64,
) (*jetstream.RawStreamMsg, error) {
	msg, err := s.GetMsg(ctx, sequence)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		msg, err = r.getFromLeader(ctx, s.CachedInfo().Config.Name, sequence)
	}
	if err != nil && !errors.Is(err, errNotStored) {
		return nil, fmt.Errorf("message %d: %w", sequence, err)
	}
	return msg, err
}

// getFromLeader returns the message at a sequence of a stream as its leader has it, or
// errNotStored. A Stream of the client asks any replica where the stream allows direct reads, as
// all of ours do.
func (r *Recorder) getFromLeader(
	ctx context.Context, name string, sequence uint64,
) (*jetstream.RawStreamMsg, error) {
	s, err := r.js.Stream(ctx, name)
	if err != nil {
		return nil, err
	}
	if !consistency.Leads(s.CachedInfo().Cluster) {
		return nil, errNoMajority
	}
	question := fmt.Appendf(nil, `{"seq":%d}`, sequence)
	answer, err := r.js.Conn().RequestWithContext(ctx,
		jetstream.DefaultAPIPrefix+"STREAM.MSG.GET."+name, question)
	if err != nil {
		return nil, err
	}
	var found struct {
		Error   *jetstream.APIError
		Message *struct {
			Subject string    `json:"subject"`
			Header  []byte    `json:"hdrs"`
			Data    []byte    `json:"data"`
			Time    time.Time `json:"time"`
		}
	}
	switch err := json.Unmarshal(answer.Data, &found); {
	case err != nil:
		return nil, fmt.Errorf("the server's answer: %w", err)
	case found.Error != nil && found.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil, errNotStored
	case found.Error != nil:
		return nil, found.Error
	case found.Message == nil:
		return nil, jetstream.ErrInvalidJetStreamResponse
	}
	msg := &jetstream.RawStreamMsg{
		Subject: found.Message.Subject, Sequence: sequence, Data: found.Message.Data,
		Time: found.Message.Time,
	}
	if len(found.Message.Header) > 0 {
		if msg.Header, err = nats.DecodeHeadersMsg(found.Message.Header); err != nil {
			return nil, fmt.Errorf("headers of the message: %w", err)
		}
	}
	return msg, nil
}
