package edit

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/registry"
)

// EnsureBuckets creates the buckets that do not exist yet, with the given number of replicas. It
// changes existing buckets to keep MaxRecordRevisions revisions of each record; all their other
// settings stay unchanged.
func EnsureBuckets(ctx context.Context, js jetstream.JetStream, replicas int) error {
	for _, bucket := range []struct{ name, description string }{
		{registry.Bucket, "hookstart: accounts, plans, workflows"},
		{registry.SecretsBucket, "hookstart: tokens and sample payloads"},
	} {
		_, err := js.KeyValue(ctx, bucket.name)
		if errors.Is(err, jetstream.ErrBucketNotFound) {
			_, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
				Bucket: bucket.name, Description: bucket.description,
				History: 64, Storage: jetstream.FileStorage, Replicas: replicas,
			})
			if errors.Is(err, jetstream.ErrBucketExists) {
				err = nil // another executor has created it
			}
		}
		if err == nil {
			err = extendHistory(ctx, js, registry.StreamOf(bucket.name))
		}
		if err != nil {
			return fmt.Errorf("bucket %s: %w", bucket.name, err)
		}
	}
	return nil
}

// extendHistory makes the stream of a bucket keep MaxRecordRevisions revisions of each record. This
// takes a separate call because the client library cannot create a bucket that keeps more than 64
// revisions.
func extendHistory(ctx context.Context, js jetstream.JetStream, stream string) error {
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return err
	}
	config := s.CachedInfo().Config
	if config.MaxMsgsPerSubject == MaxRecordRevisions {
		return nil
	}
	config.MaxMsgsPerSubject = MaxRecordRevisions
	_, err = js.UpdateStream(ctx, config)
	return err
}
