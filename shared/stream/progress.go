package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
)

// ProgressName is the stream of runners' reports. On EXECUTIONS they could use up a delivery's Nats-Msg-Id, or the room of starts.
const ProgressName = "PROGRESS"

// minProgressBytes is the smallest bound that is tried where the disk has little room.
const minProgressBytes = 16 << 20

// The server's error codes for a bound that does not fit; see errors.json of nats-server.
const (
	codeStorageExceeded       = 10047
	codeInsufficientResources = 10023
)

// ProgressConfig is the configuration of the stream of reports. The reasons behind it:
//
// When it is full it drops its oldest messages, most of which are recorded. If it refused new ones, runners would run everything
// again and again until its oldest ones are past their age. A report is lost only if it is pushed out before it is recorded: while
// the database is away for longer than it takes runners to report that much.
//
// It knows no Nats-Msg-Id: two reports with the same one are two reports. The server has no setting for that: a window of zero means
// two minutes, and the smallest is 100 ms. Only a stream with a source may have none (stream.go of nats-server 2.15.2,
// checkStreamCfg), so it has one from which nothing ever comes.
func (s Settings) ProgressConfig() jetstream.StreamConfig {
	maxBytes := s.ProgressMaxBytes
	if maxBytes == 0 {
		maxBytes = DefaultSettings.ProgressMaxBytes
	}
	return jetstream.StreamConfig{
		Name:        ProgressName,
		Description: "hookstart: what runners report of executions",
		Subjects:    []string{progressPrefix + "*.*.*"},
		Retention:   jetstream.LimitsPolicy,
		Discard:     jetstream.DiscardOld,
		Storage:     jetstream.FileStorage,
		Replicas:    s.Replicas,
		MaxAge:      s.MaxAge,
		MaxBytes:    maxBytes,
		Sources:     []*jetstream.StreamSource{{Name: ReportsName, FilterSubject: "reports.none"}},
		AllowDirect: true,
	}
}

// ensureProgress creates the stream of reports if it does not exist, once no other stream has its subjects.
func ensureProgress(ctx context.Context, js jetstream.JetStream, s Settings) error {
	want := s.ProgressConfig()
	existing, err := js.Stream(ctx, ProgressName)
	for errors.Is(err, jetstream.ErrStreamNotFound) {
		existing, err = js.CreateStream(ctx, want)
		switch {
		case errors.Is(err, jetstream.ErrStreamNameAlreadyInUse): // another executor was first, perhaps with another bound
			existing, err = js.Stream(ctx, ProgressName)
		case tooLarge(err) && want.MaxBytes > minProgressBytes:
			// The server reserves the bound. A small disk gets a smaller stream, which leaves room for others.
			want.MaxBytes /= 4
			existing, err = nil, jetstream.ErrStreamNotFound
		}
	}
	if err != nil {
		return fmt.Errorf("stream %s: %w", ProgressName, err)
	}
	// Its size and age are those it was made with, or what an operator has made of them since.
	want.MaxBytes, want.MaxAge = existing.CachedInfo().Config.MaxBytes, existing.CachedInfo().Config.MaxAge
	if differences := mismatches(existing.CachedInfo().Config, want); len(differences) > 0 {
		return mismatch(ProgressName, differences)
	}
	return nil
}

func tooLarge(err error) bool {
	api, is := errors.AsType[*jetstream.APIError](err)
	return is && (uint16(api.ErrorCode) == codeStorageExceeded || uint16(api.ErrorCode) == codeInsufficientResources)
}

// hasProgress says whether EXECUTIONS still has the reports' subjects, as before they had a stream of their own.
func hasProgress(have, want jetstream.StreamConfig) bool {
	before := append(slices.Clone(want.Subjects), progressPrefix+"*.*.*")
	return slices.Equal(have.Subjects, before)
}

// releaseProgress takes the reports' subjects from EXECUTIONS. The reports in it stay, and are recorded from there. Several executors
// may call it at once, and the next one completes what one that ends leaves: until the new stream is there, runners find nobody
// who takes their reports, and try again.
func releaseProgress(ctx context.Context, js jetstream.JetStream, config, want jetstream.StreamConfig) error {
	config.Subjects, config.Description = want.Subjects, want.Description
	if _, err := js.UpdateStream(ctx, config); err != nil {
		return fmt.Errorf("stream %s: take the subjects of reports from it: %w", Name, err)
	}
	return nil
}
