// Package leader reads messages of a stream from the stream's leader, and can make another server
// the leader.
package leader

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrNoMessage means that, according to the stream's leader, the stream has no message that the
// Query selects.
var ErrNoMessage = errors.New("the stream has no such message")

// Query selects one message of a stream.
type Query struct {
	// Sequence is the sequence number of the message. With NextBySubject, it is the lowest sequence
	// number that the message may have. With LastBySubject, it is 0.
	Sequence      uint64 `json:"seq,omitempty"`
	LastBySubject string `json:"last_by_subj,omitempty"` // selects the last message on a subject
	NextBySubject string `json:"next_by_subj,omitempty"` // may contain wildcards
}

// Get returns one message of a stream from the stream's leader. It fails with ErrNoMessage if the
// leader has no such message, and with jetstream.ErrStreamNotFound if there is no such stream. In
// contrast, the methods of jetstream.Stream query any replica, which may not have the newest
// messages yet.
//
// A leader that has lost contact with the other servers does not notice this immediately. Its
// response may then be out of date. consistency.GetFromLeader of the registry checks for this.
func Get(
	ctx context.Context, nc *nats.Conn, name string, query Query,
) (*jetstream.RawStreamMsg, error) {
	data, err := json.Marshal(query)
	if err != nil {
		return nil, err
	}
	reply, err := nc.RequestWithContext(ctx,
		jetstream.DefaultAPIPrefix+"STREAM.MSG.GET."+name, data)
	if err != nil {
		return nil, err
	}
	var found struct {
		Error   *jetstream.APIError `json:"error"`
		Message *struct {
			Subject  string    `json:"subject"`
			Sequence uint64    `json:"seq"`
			Header   []byte    `json:"hdrs"`
			Data     []byte    `json:"data"`
			Time     time.Time `json:"time"`
		} `json:"message"`
	}
	if err := json.Unmarshal(reply.Data, &found); err != nil {
		return nil, fmt.Errorf("the server's answer: %w", err)
	}
	if failure := found.Error; failure != nil {
		if failure.ErrorCode == jetstream.JSErrCodeMessageNotFound {
			return nil, ErrNoMessage
		}
		if failure.ErrorCode == jetstream.JSErrCodeStreamNotFound {
			return nil, jetstream.ErrStreamNotFound
		}
		return nil, failure
	}
	if found.Message == nil {
		return nil, jetstream.ErrInvalidJetStreamResponse
	}
	msg := &jetstream.RawStreamMsg{
		Subject:  found.Message.Subject,
		Sequence: found.Message.Sequence,
		Data:     found.Message.Data,
		Time:     found.Message.Time,
	}
	if len(found.Message.Header) > 0 {
		if msg.Header, err = nats.DecodeHeadersMsg(found.Message.Header); err != nil {
			return nil, fmt.Errorf("headers of the message: %w", err)
		}
	}
	return msg, nil
}

// StepDown makes the leader of the named stream step down. If preferred is not "", the server with
// that name becomes the next leader if it can. prefix is the prefix of the JetStream API, such as
// jetstream.DefaultAPIPrefix.
func StepDown(ctx context.Context, nc *nats.Conn, prefix, name, preferred string) error {
	var data []byte
	if preferred != "" {
		data = []byte(`{"placement":{"preferred":"` + preferred + `"}}`)
	}
	reply, err := nc.RequestWithContext(ctx, prefix+"STREAM.LEADER.STEPDOWN."+name, data)
	if err != nil {
		return err
	}
	var response struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(reply.Data, &response); err != nil {
		return fmt.Errorf("the server's response: %w", err)
	}
	if response.Error != nil {
		return response.Error
	}
	return nil
}

// EnsureLeaders gives every stream the leader that want returns for it: the name of a server, or ""
// if any server may lead the stream. If another server leads a stream, EnsureLeaders makes it step
// down, and returns an error so that the caller tries again. It returns nil once every stream has
// the wanted leader and all replicas are current.
func EnsureLeaders(
	ctx context.Context, js jetstream.JetStream, want func(*jetstream.StreamInfo) string,
) error {
	var errs []error
	all := js.ListStreams(ctx)
	for info := range all.Info() {
		name := info.Config.Name
		if info.Cluster == nil {
			errs = append(errs, fmt.Errorf("%s has no leader", name))
			continue
		}
		for _, peer := range info.Cluster.Replicas {
			if !peer.Current {
				errs = append(errs, fmt.Errorf("%s is behind on %s", name, peer.Name))
			}
		}
		if server := want(info); server != "" && server != info.Cluster.Leader {
			errs = append(errs, fmt.Errorf("%s is led by %q", name, info.Cluster.Leader),
				StepDown(ctx, js.Conn(), jetstream.DefaultAPIPrefix, name, server))
		}
	}
	return errors.Join(append(errs, all.Err())...)
}
