package streamtest

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/stream"
)

// The bucket keeps cancellations for at least as long as the streams keep messages, even after an
// operator has increased the messages' maximum age.
func TestCancellationsAreKeptAsLongAsMessages(t *testing.T) {
	t.Parallel()
	js, err := jetstream.New(natstest.Start(t).Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, settings := t.Context(), stream.DefaultSettings
	keptFor := func() time.Duration {
		t.Helper()
		bucket, err := js.Stream(ctx, stream.CancellationsStream)
		if err != nil {
			t.Fatal(err)
		}
		return bucket.CachedInfo().Config.MaxAge
	}
	if err := errors.Join(stream.EnsureSharedStreams(ctx, js, settings),
		stream.EnsureCancellationsBucket(ctx, js, settings)); err != nil {
		t.Fatal(err)
	}
	if age := keptFor(); age != settings.MaxAge {
		t.Errorf("a new bucket keeps keys for %v", age)
	}
	longer := settings
	longer.MaxAge *= 4
	if err := stream.ChangeSettings(ctx, js, longer); err != nil {
		t.Fatal(err)
	}
	if age := keptFor(); age != longer.MaxAge {
		t.Errorf("after a change of the stream's age, it keeps keys for %v", age)
	}
	// An executor whose settings have a larger maximum age makes the bucket keep its keys for
	// longer. Another one with the default settings does not shorten that time again.
	longer.MaxAge *= 2
	for _, s := range []stream.Settings{longer, settings} {
		if err := stream.EnsureCancellationsBucket(ctx, js, s); err != nil {
			t.Fatal(err)
		}
		if age := keptFor(); age != longer.MaxAge {
			t.Errorf("an executor with an age of %v keeps keys for %v", s.MaxAge, age)
		}
	}
}
