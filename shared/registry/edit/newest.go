package edit

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/registry/consistency"
)

// revision is one revision of a record in its bucket.
type revision struct {
	revision uint64
	data     []byte
	deleted  bool
}

// newest returns the newest revision of a record, or nil if the record never existed. The client's
// KeyValue would ask any replica, which may not have the newest revision yet. newest asks the
// leader of the bucket's stream, which must have a majority.
func newest(ctx context.Context, js jetstream.JetStream, bucket, key string) (*revision, error) {
	name := streamOf(bucket)
	s, err := js.Stream(ctx, name)
	if err != nil {
		return nil, err
	}
	if !consistency.Leads(s.CachedInfo().Cluster) {
		return nil,
			fmt.Errorf("%w: the server that answers for %s does not reach a majority",
				consistency.ErrNotCurrent, name)
	}
	question, err := json.Marshal(map[string]string{"last_by_subj": subjectOf(bucket, key)})
	if err != nil {
		return nil, err
	}
	answer, err := js.Conn().RequestWithContext(ctx,
		jetstream.DefaultAPIPrefix+"STREAM.MSG.GET."+name, question)
	if err != nil {
		return nil, err
	}
	var found struct {
		Error   *jetstream.APIError
		Message *struct {
			Sequence uint64 `json:"seq"`
			Header   []byte `json:"hdrs"`
			Data     []byte `json:"data"`
		}
	}
	switch err := json.Unmarshal(answer.Data, &found); {
	case err != nil:
		return nil, fmt.Errorf("the newest revision of %s: %w", key, err)
	case found.Error != nil && found.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil, nil //nolint:nilnil // that is the answer
	case found.Error != nil:
		return nil, found.Error
	case found.Message == nil:
		return nil, jetstream.ErrInvalidJetStreamResponse
	}
	last := &revision{revision: found.Message.Sequence, data: found.Message.Data}
	if len(found.Message.Header) > 0 {
		header, err := nats.DecodeHeadersMsg(found.Message.Header)
		if err != nil {
			return nil, fmt.Errorf("the newest revision of %s: %w", key, err)
		}
		last.deleted = header.Get(kvOperation) != ""
	}
	return last, nil
}
