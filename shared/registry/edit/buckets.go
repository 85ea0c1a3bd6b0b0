package edit

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/registry"
)

// EnsureBuckets creates the buckets that do not exist yet. It changes existing buckets to keep
// History revisions of each record; all their other settings stay unchanged.
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
			err = extendHistory(ctx, js, "KV_"+bucket.name)
		}
		if err != nil {
			return fmt.Errorf("bucket %s: %w", bucket.name, err)
		}
	}
	return nil
}

// extendHistory makes a bucket keep as many revisions as the audit may need. The client library
// cannot create a bucket that keeps more than 64.
func extendHistory(ctx context.Context, js jetstream.JetStream, stream string) error {
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return err
	}
	config := s.CachedInfo().Config
	if config.MaxMsgsPerSubject == History {
		return nil
	}
	config.MaxMsgsPerSubject = History
	_, err = js.UpdateStream(ctx, config)
	return err
}

// The names under which deploy/nats/accounts.conf exports the original bucket's API and messages to
// the account of the copy.
const (
	originalAPI     = "HOOKSTART.API"
	originalDeliver = "feed.deliver"
)

// EnsureCopy creates a copy of the registry for ingresses that may not read the original: a mirror
// of the bucket in a separate account. js must have the API prefix under which that account's API
// is imported. An existing copy is left unchanged.
func EnsureCopy(ctx context.Context, js jetstream.JetStream, replicas int) error {
	_, err := js.Stream(ctx, registry.Stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = js.CreateStream(ctx, jetstream.StreamConfig{
			Name:        registry.Stream,
			Description: "hookstart: the copy of the registry that ingresses read",
			Mirror: &jetstream.StreamSource{
				Name: registry.Stream,
				External: &jetstream.ExternalStream{
					APIPrefix:     originalAPI,
					DeliverPrefix: originalDeliver,
				},
			},
			Retention:         jetstream.LimitsPolicy,
			Storage:           jetstream.FileStorage,
			MaxMsgsPerSubject: 1,
			Replicas:          replicas,
		})
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			err = nil // another executor has created it
		}
	}
	if err != nil {
		return fmt.Errorf("the registry's copy: %w", err)
	}
	return nil
}
