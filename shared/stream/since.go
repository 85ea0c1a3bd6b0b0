package stream

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// SequenceSince returns the sequence number of the first message that a stream stored at the given
// time or later. It fails with jetstream.ErrMsgNotFound if there is none. Any replica of the stream
// may respond, and a lagging one may not have the newest messages. The stream must allow direct
// gets.
func SequenceSince(
	ctx context.Context, js jetstream.JetStream, name string, since time.Time,
) (sequence uint64, err error) {
	// With a batch of one message, the server skips deleted messages. It then sends a second
	// message to end its response, which is ignored here.
	question, err := json.Marshal(map[string]any{"start_time": since.UTC(), "batch": 1})
	if err != nil {
		return 0, err
	}
	reply, err := js.Conn().RequestMsgWithContext(ctx, &nats.Msg{
		Subject: jetstream.DefaultAPIPrefix + "DIRECT.GET." + name,
		Data:    question,
	})
	if err != nil {
		return 0, fmt.Errorf("stream %s: %w", name, err)
	}
	switch status := reply.Header.Get("Status"); status {
	case "":
	case "404":
		return 0, jetstream.ErrMsgNotFound
	default:
		return 0, fmt.Errorf("stream %s: the server's answer: %s %s", name, status,
			reply.Header.Get("Description"))
	}
	sequence, err = strconv.ParseUint(reply.Header.Get(jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("stream %s: the server's answer: %w", name, err)
	}
	return sequence, nil
}
