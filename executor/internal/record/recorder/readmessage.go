package recorder

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/registry/consistency"
	"github.com/hookstart/hookstart/shared/stream/leader"
)

// readMessage returns the message at a sequence of a stream, or leader.ErrNoMessage. Any replica
// may return the message, but only the leader may report that there is none: a replica that is
// catching up after a partition lacks the newest messages.
func (r *Recorder) readMessage(
	ctx context.Context, s jetstream.Stream, sequence uint64,
) (*jetstream.RawStreamMsg, error) {
	msg, err := s.GetMsg(ctx, sequence)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		msg, err = consistency.GetFromLeader(ctx, r.js, s.CachedInfo().Config.Name,
			leader.Query{Sequence: sequence})
	}
	if err != nil && !errors.Is(err, leader.ErrNoMessage) {
		return nil, fmt.Errorf("message %d: %w", sequence, err)
	}
	return msg, err
}
