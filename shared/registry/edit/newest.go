package edit

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/consistency"
	"github.com/hookstart/hookstart/shared/stream/keyvalue"
	"github.com/hookstart/hookstart/shared/stream/leader"
)

// recordRevision is one revision of a record in its bucket.
type recordRevision struct {
	revision uint64 // its sequence number in the bucket's stream
	data     []byte // empty if the record was deleted
	deleted  bool
}

// newestRevision returns the newest revision of a record, or nil if the record never existed. It
// queries the leader of the bucket's stream, and fails with consistency.ErrNotCurrent if the leader
// does not reach a majority. The client's KeyValue would query any replica, which may not have the
// newest revision yet.
func newestRevision(
	ctx context.Context,
	js jetstream.JetStream,
	bucket, key string,
) (*recordRevision, error) {
	msg, err := consistency.GetFromLeader(ctx, js, registry.StreamOf(bucket),
		leader.Query{LastBySubject: registry.SubjectOf(bucket, key)})
	switch {
	case errors.Is(err, leader.ErrNoMessage):
		return nil, nil //nolint:nilnil // that is the answer
	case errors.Is(err, consistency.ErrNoMajority):
		return nil, fmt.Errorf("%w: %w", consistency.ErrNotCurrent, err)
	case err != nil:
		return nil, fmt.Errorf("the newest revision of %s: %w", key, err)
	}
	return &recordRevision{
		revision: msg.Sequence,
		data:     msg.Data,
		deleted:  keyvalue.IsDeletion(msg.Header),
	}, nil
}
