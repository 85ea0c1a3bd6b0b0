package consistency

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/stream/leader"
)

// ErrNoMajority means that the server responding for a stream cannot reach a majority of the
// stream's replicas, so its responses may be out of date.
var ErrNoMajority = errors.New("the stream's leader does not reach a majority of its replicas")

// GetFromLeader returns one message of the stream with the given name from the stream's leader. It
// fails with leader.ErrNoMessage if there is no such message, and with ErrNoMajority if the leader
// cannot reach a majority, because its response may then be out of date.
func GetFromLeader(
	ctx context.Context, js jetstream.JetStream, name string, query leader.Query,
) (*jetstream.RawStreamMsg, error) {
	s, err := js.Stream(ctx, name)
	if err != nil {
		return nil, err
	}
	if !HasMajority(s.CachedInfo().Cluster) {
		return nil, fmt.Errorf("%w: %s", ErrNoMajority, name)
	}
	return leader.Get(ctx, js.Conn(), name, query)
}
