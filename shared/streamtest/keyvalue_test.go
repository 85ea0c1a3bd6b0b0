package streamtest

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/stream/keyvalue"
)

// Package keyvalue recognizes the values and deletions that the NATS client stores in a bucket, and
// the client recognizes a deletion that was made with the package.
func TestKeyValueAgreesWithTheClient(t *testing.T) {
	t.Parallel()
	js := startJetStream(t)
	bucket, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{
		Bucket:  "bucket",
		History: 9,
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = bucket.PutString(t.Context(), "deleted", "value")
	err = errors.Join(err, bucket.Delete(t.Context(), "deleted"))
	err = errors.Join(err, bucket.Purge(t.Context(), "purged"))
	_, putErr := bucket.PutString(t.Context(), "key", "value")
	if err := errors.Join(err, putErr); err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), keyvalue.StreamPrefix+"bucket")
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		key     string
		deletes bool
	}{{"deleted", false}, {"deleted", true}, {"purged", true}, {"key", false}} {
		msg, err := s.GetMsg(t.Context(), uint64(i+1))
		if err != nil {
			t.Fatal(err)
		}
		if msg.Subject != keyvalue.SubjectPrefix+"bucket."+want.key ||
			keyvalue.IsDeletion(msg.Header) != want.deletes {
			t.Errorf("message %d is %s %v, want %+v", i+1, msg.Subject, msg.Header, want)
		}
	}

	if _, err := js.PublishMsg(t.Context(), &nats.Msg{
		Subject: keyvalue.SubjectPrefix + "bucket.key", Header: keyvalue.DeletionHeader(),
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := bucket.Get(t.Context(), "key"); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Errorf("after the deletion: %v", err)
	}
}
