// Package stream defines how Hookstart uses JetStream: the streams, their subjects, and the
// encoding of start messages, rejections and reports. Package runner, the ingress, the executor and
// the command line tool use it. No other package knows how a message is encoded: callers pass and
// receive the types of package execution.
//
// The streams and their subjects:
//
//	EXECUTIONS        start messages and rejections from ingresses;
//	                  start messages of reruns and events from executors
//	  executions.start.{queue}.{workflowId}.{nodeId}
//	  executions.ordered.{queue}.{lane}.{workflowId}.{nodeId}
//	  executions.rejected.{queue}.{workflowId}.{nodeId}
//	  executions.remembered.{queue}.{workflowId}
//	PROGRESS          reports on executions from runners, and from executors that cancel them
//	  executions.progress.{queue}.{workflowId}.{executionId}
//	REPORTS           counts from ingresses, for example of refusals and repeats
//	  reports.{kind}
//	KV_cancellations  the bucket of executions that an operator has canceled
//
// Each group of runners (RunnerGroup) receives start messages through a consumer of its own, and
// through one more consumer for each lane of executions with an order key. Executors read
// EXECUTIONS, PROGRESS and REPORTS through RecorderConsumerName, and record the messages in the
// database. An ingress reads PROGRESS while a request waits for its execution to finish. Runners
// check the bucket for cancellations. A queue may have its own streams: see Layout.
//
// Executors create the streams. A runner creates only its group's consumers.
//
// Sizes are in bytes. Sequence numbers are those of the stream, and begin with 1. Decoding errors
// wrap ErrUnreadable. NATS errors are returned unchanged or wrapped, so that errors.Is finds, for
// example, jetstream.ErrStreamNotFound. ErrorCode returns the server's error code.
package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/retry"
)

// RecorderConsumerName is the name of the durable consumer through which executors record a
// stream's messages in the database. Each stream has one, which all executors share.
const RecorderConsumerName = "executor"

// ExecutionsName is the name of the shared stream of start messages and rejections.
const ExecutionsName = "EXECUTIONS"

// Prefixes of the subjects in the shared streams, one for each kind of message. Start messages with
// an order key have a prefix of their own.
const (
	startPrefix    = "executions.start."
	orderedPrefix  = "executions.ordered."
	rejectedPrefix = "executions.rejected."
	progressPrefix = "executions.progress."
)

// StartSubject returns the subject, in EXECUTIONS, of a start message without an order key. The
// arguments must be valid names (execution.ValidName), which contain no dot.
func StartSubject(queue, workflowID, nodeID string) string {
	return startPrefix + queue + "." + workflowID + "." + nodeID
}

// OrderedSubject returns the subject, in EXECUTIONS, of a start message with an order key. lane is
// the key's lane within the queue: see execution.LaneOf.
func OrderedSubject(queue string, lane int, workflowID, nodeID string) string {
	return orderedPrefix + queue + "." + strconv.Itoa(lane) + "." + workflowID + "." + nodeID
}

// SubjectOf returns the subject, in EXECUTIONS, of the start message s. If s has an order key, the
// subject contains the key's lane.
func SubjectOf(s *execution.Start) string { return Layout{}.SubjectOf(s) }

// IsStartSubject reports whether a subject belongs to a start message, in EXECUTIONS or in a
// queue's own stream, with or without an order key.
func IsStartSubject(subject string) bool {
	if _, tail, ok := parseOwnSubject(subject); ok {
		return strings.HasPrefix(tail, "start.") || strings.HasPrefix(tail, "ordered.")
	}
	return strings.HasPrefix(subject, startPrefix) || strings.HasPrefix(subject, orderedPrefix)
}

// isRejectedSubject reports whether a subject belongs to a message that records a rejected request,
// in EXECUTIONS or in a queue's own stream.
func isRejectedSubject(subject string) bool {
	if _, tail, ok := parseOwnSubject(subject); ok {
		return strings.HasPrefix(tail, "rejected.")
	}
	return strings.HasPrefix(subject, rejectedPrefix)
}

// RejectedSubject returns the subject, in EXECUTIONS, of the message that records a rejected
// request.
func RejectedSubject(queue, workflowID, nodeID string) string {
	return rejectedPrefix + queue + "." + workflowID + "." + nodeID
}

// ProgressSubject returns the subject, in PROGRESS, of the reports on one execution.
func ProgressSubject(queue, workflowID, executionID string) string {
	return progressPrefix + queue + "." + workflowID + "." + executionID
}

// IsProgressSubject reports whether a subject belongs to a report on an execution, in PROGRESS or
// in a queue's own stream of reports.
func IsProgressSubject(subject string) bool {
	return strings.HasPrefix(subject, progressPrefix) ||
		strings.HasPrefix(subject, ownProgressSubjectPrefix)
}

// ParseProgressSubject splits the subject of a report on an execution into its parts. ok is false
// for any other subject.
func ParseProgressSubject(subject string) (queue, workflowID, executionID string, ok bool) {
	rest, ok := strings.CutPrefix(subject, progressPrefix)
	if !ok {
		rest, ok = strings.CutPrefix(subject, ownProgressSubjectPrefix)
	}
	parts := strings.Split(rest, ".")
	if !ok || len(parts) != 3 || !isUUID(parts[2]) {
		return "", "", "", false
	}
	return parts[0], parts[1], parts[2], true
}

// QueueFilterSubject returns the wildcard subject of all start messages of a queue that have no
// order key. It is the filter subject of a runner group's consumer.
func QueueFilterSubject(queue string) string { return startPrefix + queue + ".>" }

// Settings holds the stream settings that an installation can configure.
type Settings struct {
	Replicas    int           // 1, or 3 or 5 in a cluster
	MaxAge      time.Duration // how long messages are kept, whether consumed or not
	DedupWindow time.Duration // length of the deduplication window; at most MaxAge
	// MaxBytes is the size at which EXECUTIONS refuses new messages. 0 means no limit.
	MaxBytes int64
	// ProgressMaxBytes is the size limit with which PROGRESS is created; 0 means the limit in
	// DefaultSettings. When PROGRESS has reached its limit, it drops its oldest messages.
	ProgressMaxBytes int64
}

// DefaultSettings holds the settings of an installation that does not configure any.
var DefaultSettings = Settings{
	Replicas:         1,
	MaxAge:           7 * 24 * time.Hour,
	DedupWindow:      24 * time.Hour,
	ProgressMaxBytes: 1 << 30,
}

// ExecutionsStreamConfig returns the configuration of EXECUTIONS. With LimitsPolicy and DiscardNew,
// the stream keeps every message until it expires, even after it has been consumed, because the
// server rebuilds the deduplication window from the stored messages when it restarts.
func (s Settings) ExecutionsStreamConfig() jetstream.StreamConfig {
	maxBytes := s.MaxBytes
	if maxBytes == 0 {
		maxBytes = -1
	}
	return jetstream.StreamConfig{
		Name:        ExecutionsName,
		Description: "hookstart: starts and rejections of executions",
		Subjects: []string{
			startPrefix + "*.*.*", rejectedPrefix + "*.*.*", orderedPrefix + "*.*.*.*",
			dedupMarkerSubjectPrefix + "*.*",
		},
		Retention:   jetstream.LimitsPolicy,
		Discard:     jetstream.DiscardNew,
		Storage:     jetstream.FileStorage,
		Replicas:    s.Replicas,
		MaxAge:      s.MaxAge,
		MaxBytes:    maxBytes,
		Duplicates:  s.DedupWindow,
		AllowDirect: true,
	}
}

// Validate returns an error that describes the first invalid setting, or nil if all are valid.
func (s Settings) Validate() error {
	switch {
	case s.Replicas != 1 && s.Replicas != 3 && s.Replicas != 5:
		return fmt.Errorf("replicas must be 1, 3 or 5, not %d", s.Replicas)
	case s.MaxAge < time.Minute:
		return fmt.Errorf("the stream's age must be at least 1m, not %s", s.MaxAge)
	case s.DedupWindow < 100*time.Millisecond:
		return fmt.Errorf("the dedup window must be at least 100ms, not %s", s.DedupWindow)
	case s.DedupWindow > s.MaxAge:
		return fmt.Errorf("the dedup window (%s) must not be longer than the stream's age (%s): "+
			"a delivery is known only while its message is stored", s.DedupWindow, s.MaxAge)
	case s.MaxBytes < 0:
		return fmt.Errorf("the stream's size must not be negative: %d", s.MaxBytes)
	case s.ProgressMaxBytes < 0:
		return fmt.Errorf("the size of the stream of reports must not be negative: %d",
			s.ProgressMaxBytes)
	}
	return nil
}

// ErrSettingsMismatch means that a stream exists with settings that differ from the configured
// ones. They are not changed automatically, because a shorter age, for example, would delete
// messages.
var ErrSettingsMismatch = errors.New("exists with other settings")

// EnsureSharedStreams creates the EXECUTIONS and PROGRESS streams if they do not exist. If an
// existing stream lacks subjects, because an earlier version created it, they are added, which does
// not affect stored messages. If any other setting of a stream differs, the stream stays unchanged,
// and the error wraps ErrSettingsMismatch. Two differences are allowed: in the number of replicas,
// which a command can change while the installation is running, and in the size and the age of
// PROGRESS.
func EnsureSharedStreams(ctx context.Context, js jetstream.JetStream, s Settings) error {
	want := s.ExecutionsStreamConfig()
	existing, err := js.Stream(ctx, ExecutionsName)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		existing, err = js.CreateStream(ctx, want)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another executor has created it
			existing, err = js.Stream(ctx, ExecutionsName)
		}
	}
	if err != nil {
		return err
	}
	if err := addMissingSubjects(ctx, js, existing.CachedInfo().Config, want); err != nil {
		return err
	}
	return ensureProgressStream(ctx, js, s)
}

// addMissingSubjects adds the subjects that an existing stream lacks. If the stream differs in
// anything else, it changes nothing and returns an error. Several executors may do this at the same
// time.
func addMissingSubjects(
	ctx context.Context, js jetstream.JetStream, have, want jetstream.StreamConfig,
) error {
	missing := difference(want.Subjects, have.Subjects)
	have.Subjects = append(slices.Clone(have.Subjects), missing...)
	if differences := configDifferences(have, want); len(differences) > 0 {
		return settingsMismatch(want.Name, differences)
	}
	if len(missing) == 0 {
		return nil
	}
	_, err := js.UpdateStream(ctx, have)
	if api, ok := errors.AsType[*jetstream.APIError](err); ok &&
		uint16(api.ErrorCode) == CodeInvalidConfig {
		// The server refuses to add the subjects, for example because a wildcard of the stream
		// already covers them.
		return settingsMismatch(want.Name, []string{
			fmt.Sprintf("it lacks the subjects %s, which cannot be added: %s",
				strings.Join(missing, " "), api.Description),
		})
	}
	if err != nil {
		return fmt.Errorf("add the subjects %s to the stream %s: %w", strings.Join(missing, " "),
			want.Name, err)
	}
	return nil
}

// difference returns the elements of all that are not in excluded.
func difference(all, excluded []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool {
		return slices.Contains(excluded, s)
	})
}

func settingsMismatch(name string, differences []string) error {
	return fmt.Errorf("the stream %s %w: %s; configure it as it is, or change age, size and "+
		"dedup window with `hookstart admin stream`",
		name, ErrSettingsMismatch, strings.Join(differences, ", "))
}

// SettingsDifferences describes, in words, each setting of a stream that differs from s, or returns
// nil if none does. name is the name of EXECUTIONS, PROGRESS or REPORTS. The number of replicas is
// not compared, nor are the size and the age of PROGRESS.
func SettingsDifferences(
	ctx context.Context, js jetstream.JetStream, name string, s Settings,
) ([]string, error) {
	existing, err := js.Stream(ctx, name)
	if err != nil {
		return nil, err
	}
	have, want := existing.CachedInfo().Config, s.ExecutionsStreamConfig()
	switch name {
	case ProgressName:
		want = s.ProgressStreamConfig()
		want.MaxBytes, want.MaxAge = have.MaxBytes, have.MaxAge
	case ReportsName:
		want = reportsStreamConfig(s.Replicas)
	}
	return configDifferences(have, want), nil
}

// serverLimit converts a limit to the server's notation, in which -1 instead of 0 means no limit.
func serverLimit[N int32 | int64](limit N) N {
	if limit == 0 {
		return -1
	}
	return limit
}

func configDifferences(have, want jetstream.StreamConfig) []string {
	var all []string
	check := func(what string, have, want any) {
		if have != want {
			all = append(all, fmt.Sprintf("%s is %v, configured %v", what, have, want))
		}
	}
	// Ignore other subjects that begin with "executions.": a later version may have added them, and
	// they do not affect this version.
	others := difference(have.Subjects, want.Subjects)
	others = slices.DeleteFunc(others, func(s string) bool {
		return strings.HasPrefix(s, "executions.")
	})
	if len(others)+len(difference(want.Subjects, have.Subjects)) > 0 {
		check("subjects", strings.Join(have.Subjects, " "), strings.Join(want.Subjects, " "))
	}
	check("retention", have.Retention, want.Retention)
	check("discard", have.Discard, want.Discard)
	check("storage", have.Storage, want.Storage)
	check("age", have.MaxAge, want.MaxAge)
	check("size", have.MaxBytes, want.MaxBytes)
	check("dedup window", have.Duplicates, want.Duplicates)
	check("number of messages", serverLimit(have.MaxMsgs), serverLimit(want.MaxMsgs))
	check("messages per subject", serverLimit(have.MaxMsgsPerSubject),
		serverLimit(want.MaxMsgsPerSubject))
	check("size of a message", serverLimit(have.MaxMsgSize), serverLimit(want.MaxMsgSize))
	check("acknowledging", !have.NoAck, !want.NoAck)
	check("sealed", have.Sealed, want.Sealed)
	check("direct reads", have.AllowDirect, want.AllowDirect)
	check("subject transform", have.SubjectTransform != nil, want.SubjectTransform != nil)
	return all
}

// AwaitExecutionsCreated waits until an executor has created the EXECUTIONS stream. If ctx ends
// first, it returns the error of its last attempt to find the stream.
func AwaitExecutionsCreated(ctx context.Context, js jetstream.JetStream) error {
	_, err := AwaitExecutionsStream(ctx, js)
	return err
}

// AwaitExecutionsStream is like AwaitExecutionsCreated, but also returns the stream.
func AwaitExecutionsStream(
	ctx context.Context,
	js jetstream.JetStream,
) (found jetstream.Stream, err error) {
	err = retry.Do(ctx, func(ctx context.Context) (err error) {
		found, err = js.Stream(ctx, ExecutionsName)
		return err
	})
	return found, err
}
