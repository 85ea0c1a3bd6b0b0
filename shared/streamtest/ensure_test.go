// Package streamtest tests package stream against real NATS servers. It is a separate package, so
// that a module that imports stream does not depend on a NATS server.
package streamtest

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/stream"
)

// id is the ID of an execution.
const id = "01890a5d-ac96-774b-bcce-b302099a8057"

func TestEnsure(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	js, err := jetstream.New(server.Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for range 2 { // the second time, the streams exist
		if err := stream.EnsureSharedStreams(ctx, js, stream.DefaultSettings); err != nil {
			t.Fatal(err)
		}
		if err := stream.EnsureReportsStream(ctx, js, 1); err != nil {
			t.Fatal(err)
		}
	}
	other := stream.DefaultSettings
	other.MaxAge, other.DedupWindow = time.Hour, time.Minute
	err = stream.EnsureSharedStreams(ctx, js, other)
	if !errors.Is(err, stream.ErrSettingsMismatch) ||
		!strings.Contains(err.Error(), "age is 168h0m0s, configured 1h0m0s") ||
		!strings.Contains(err.Error(), "dedup window is 24h0m0s, configured 1m0s") {
		t.Errorf("%v", err)
	}
	s, err := js.Stream(ctx, stream.ExecutionsName)
	if err != nil || s.CachedInfo().Config.MaxAge != stream.DefaultSettings.MaxAge {
		t.Errorf("the stream was edited: %v", err)
	}
	// Names that are unusual but valid must also match the streams' subjects.
	for _, subject := range []string{
		stream.StartSubject("-", "_", strings.Repeat("x", 64)),
		stream.ProgressSubject("q", "w", id),
	} {
		if _, err := js.Publish(ctx, subject, nil); err != nil {
			t.Errorf("%s: %v", subject, err)
		}
	}
}

// A stream created by an earlier version has fewer subjects. EnsureSharedStreams adds the missing
// ones, and keeps the messages and an operator's settings. It refuses a stream with any other
// difference.
func TestEnsureAddsSubjects(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	js, err := jetstream.New(server.Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	subjects := func() []string {
		t.Helper()
		s, err := js.Stream(ctx, stream.ExecutionsName)
		if err != nil {
			t.Fatal(err)
		}
		return s.CachedInfo().Config.Subjects
	}
	earlier := stream.DefaultSettings.ExecutionsStreamConfig()
	all := earlier.Subjects
	earlier.Subjects, earlier.Metadata = all[:2], map[string]string{"operator": "me"}
	if _, err := js.CreateStream(ctx, earlier); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(ctx, stream.StartSubject("q", "w", "n"), []byte("kept")); err != nil {
		t.Fatal(err)
	}
	other := stream.DefaultSettings
	other.DedupWindow = time.Minute
	err = stream.EnsureSharedStreams(ctx, js, other)
	if !errors.Is(err, stream.ErrSettingsMismatch) || !slices.Equal(subjects(), all[:2]) {
		t.Errorf("with another dedup window: %v, %q", err, subjects())
	}
	var executors sync.WaitGroup
	for range 3 {
		executors.Go(func() {
			if err := errors.Join(stream.EnsureSharedStreams(ctx, js, stream.DefaultSettings),
				stream.EnsureReportsStream(ctx, js, 1)); err != nil {
				t.Error(err)
			}
		})
	}
	executors.Wait()
	if !slices.Equal(subjects(), all) {
		t.Errorf("%q, want %q", subjects(), all)
	}
	if _, err := js.Publish(ctx, stream.OrderedSubject("q", 3, "w", "n"), nil); err != nil {
		t.Error(err)
	}
	s, err := js.Stream(ctx, stream.ExecutionsName)
	if err != nil || s.CachedInfo().State.Msgs != 2 ||
		s.CachedInfo().Config.Metadata["operator"] != "me" {
		t.Errorf("%v, %+v", err, s.CachedInfo())
	}

	// A later version may have added subjects that this version does not know. EnsureSharedStreams
	// accepts them only if they begin with "executions.".
	change := func(subjects ...string) error {
		config := s.CachedInfo().Config
		config.Subjects = subjects
		_, err := js.UpdateStream(ctx, config)
		if err != nil {
			t.Fatal(err)
		}
		return stream.EnsureSharedStreams(ctx, js, stream.DefaultSettings)
	}
	if err := change(append(slices.Clone(all), "executions.later.*")...); err != nil ||
		len(subjects()) != len(all)+1 {
		t.Errorf("subjects of a later version: %v, %q", err, subjects())
	}
	if err := change(append(slices.Clone(all), "mine.>")...); !errors.Is(err,
		stream.ErrSettingsMismatch) ||
		!strings.Contains(err.Error(), "mine.>") {
		t.Errorf("a subject of others: %v", err)
	}
	if err := change(all[0], all[1], "executions.ordered.>"); !errors.Is(err,
		stream.ErrSettingsMismatch) ||
		!strings.Contains(err.Error(), "overlap") {
		t.Errorf("a wildcard that contains a missing subject: %v", err)
	}
}
