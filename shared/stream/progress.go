package stream

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// ProgressName is the name of the stream of runners' reports. Reports are not stored in EXECUTIONS,
// because they could fill the space for start messages there, and a report with the Nats-Msg-Id of
// a delivery would make that delivery look like a repeat.
const ProgressName = "PROGRESS"

// minProgressStreamBytes is the smallest size limit that ensureProgressStream tries if there is
// little disk space.
const minProgressStreamBytes = 16 << 20

// ProgressStreamConfig returns the configuration of the stream of reports.
//
// When the stream is full it drops its oldest messages, most of which have already been recorded.
// If it refused new ones instead, runners would repeat executions until the oldest messages expire.
// A report is lost only if it is dropped before it has been recorded, that is, if the database is
// unavailable for longer than it takes runners to fill the stream with reports.
//
// The stream has no deduplication window, so that two reports with the same Nats-Msg-Id are both
// stored. The server has no setting for that: a window of zero means two minutes, and the minimum
// is 100 ms. Only a stream with a source may have no window (stream.go of nats-server 2.15.2,
// checkStreamCfg). So this stream has a source that never delivers anything.
func (s Settings) ProgressStreamConfig() jetstream.StreamConfig {
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

// ensureProgressStream creates the stream of reports, or checks the settings of an existing one.
func ensureProgressStream(ctx context.Context, js jetstream.JetStream, s Settings) error {
	want := s.ProgressStreamConfig()
	existing, err := js.Stream(ctx, ProgressName)
	for errors.Is(err, jetstream.ErrStreamNotFound) {
		existing, err = js.CreateStream(ctx, want)
		switch {
		// Another executor has created the stream, perhaps with a different limit.
		case errors.Is(err, jetstream.ErrStreamNameAlreadyInUse):
			existing, err = js.Stream(ctx, ProgressName)
		case isSizeLimitTooLarge(err) && want.MaxBytes > minProgressStreamBytes:
			// The server reserves disk space for the whole limit. On a small disk, try a smaller
			// limit to leave space for other streams.
			want.MaxBytes /= 4
			existing, err = nil, jetstream.ErrStreamNotFound
		}
	}
	if err != nil {
		return fmt.Errorf("stream %s: %w", ProgressName, err)
	}
	// An existing stream keeps the maximum size and age that it was created with or that an
	// operator has set since.
	want.MaxBytes, want.MaxAge = existing.CachedInfo().Config.MaxBytes,
		existing.CachedInfo().Config.MaxAge
	return addMissingSubjects(ctx, js, existing.CachedInfo().Config, want)
}

// isSizeLimitTooLarge reports whether the server refused a stream because its size limit exceeds
// the available space.
func isSizeLimitTooLarge(err error) bool {
	code := ErrorCode(err)
	return code == CodeStorageExceeded || code == CodeInsufficientResources
}
