package backup

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/registry/registrytest"
	"github.com/hookstart/hookstart/shared/stream"
)

// recordsAPI is a fake of the operators' API. RestoreRecords calls restore and returns its result.
// AwaitAccountApplied returns appliedErr.
type recordsAPI struct {
	API
	restore    func() error
	appliedErr error
}

func (a recordsAPI) RestoreRecords(context.Context, []byte, bool) error { return a.restore() }

func (a recordsAPI) AwaitAccountApplied(context.Context, string) error { return a.appliedErr }

// createRecorderConsumers creates the recorder's consumers, as an executor does.
func createRecorderConsumers(
	t *testing.T, js jetstream.JetStream,
) (consumers []jetstream.Consumer) {
	t.Helper()
	for _, name := range []string{stream.ExecutionsName, stream.ProgressName} {
		c, err := js.CreateConsumer(t.Context(), name, jetstream.ConsumerConfig{
			Durable: stream.RecorderConsumerName, AckPolicy: jetstream.AckAllPolicy,
		})
		if err != nil {
			t.Fatal(err)
		}
		consumers = append(consumers, c)
	}
	return consumers
}

// No matter how long a restore takes, runners and the recorder receive no message until everything
// else is restored and their consumers' positions are set. If the restore fails, they never receive
// one.
func TestConsumersStayPausedDuringRestore(t *testing.T) {
	t.Parallel()
	gone := errors.New("the database is gone")
	for name, test := range map[string]struct {
		recordsErr  error  // what the restore of the records returns
		deletes     string // the stream that is deleted while the records are restored
		wantFailure string // part of the restore's error; "" means that it succeeds
	}{
		"successful": {},
		"records":    {recordsErr: gone, wantFailure: gone.Error()},
		"registry":   {deletes: registry.Stream, wantFailure: "bucket " + registry.Bucket},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			js := registrytest.Start(t, natstest.Start(t).Connect(t)).JetStream
			group := stream.RunnerGroup{Queue: "default", Group: "g"}
			runner, err := stream.EnsureRunnerConsumer(t.Context(), js, group,
				group.ConsumerConfig(stream.RunnerAckWait))
			check(err)
			// A group that is not in the file, of a runner that uses no kit.
			other, err := js.CreateConsumer(t.Context(), stream.ExecutionsName,
				jetstream.ConsumerConfig{
					Durable: "other", FilterSubject: "executions.start.>",
					AckPolicy: jetstream.AckExplicitPolicy,
				})
			check(err)
			consumers := append(createRecorderConsumers(t, js), runner, other)
			received := make(chan uint64, 10) // the sequences that the runner gets
			running, err := runner.Consume(func(msg jetstream.Msg) {
				meta, err := msg.Metadata()
				if err != nil {
					t.Error(err)
					return
				}
				received <- meta.Sequence.Stream
			}, jetstream.PullExpiry(time.Second))
			check(err)
			defer running.Stop()
			checkPaused := func() {
				t.Helper()
				for _, c := range consumers {
					info, err := c.Info(t.Context())
					check(err)
					if info.PauseRemaining < 365*24*time.Hour {
						t.Errorf("%s of %s: paused %t, for %s only", info.Name, info.Stream,
							info.Paused, info.PauseRemaining)
					}
				}
				if len(received) > 0 {
					t.Errorf("the runner got message %d", <-received)
				}
			}

			file := sound(t)
			file.manifest.Streams[0].GroupPositions = []RunnerGroupPosition{
				{Config: group.ConsumerConfig(stream.RunnerAckWait), AckFloor: 3},
			}
			restored := false
			installation := Installation{JetStream: js, Progress: io.Discard, API: recordsAPI{
				restore: func() error {
					checkPaused()
					if test.deletes != "" && !restored {
						check(js.DeleteStream(t.Context(), test.deletes))
					}
					restored = true
					return test.recordsErr
				},
			}}
			_, err = Restore(t.Context(), installation, file.write(t), RestoreOptions{
				WithMessages: true,
			})
			if !restored {
				t.Fatalf("no records were restored: %v", err)
			}
			if test.wantFailure != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantFailure) ||
					!strings.Contains(err.Error(), "half restored") {
					t.Errorf("the restore ended with %v", err)
				}
				checkPaused()
				return
			}
			check(err)
			select {
			case got := <-received:
				if got != 6 {
					t.Errorf("the runner goes on at %d", got)
				}
			case <-time.After(30 * time.Second):
				t.Error("the runner gets no message")
			}
			for _, c := range consumers {
				info, err := c.Info(t.Context())
				check(err)
				if info.Paused {
					t.Errorf("%s of %s is still paused", info.Name, info.Stream)
				}
			}
		})
	}
}

// The backup has three consumers of runners, one of them for a lane. They were created with
// DeliverNew and have acknowledged all messages up to 3. After the restore, each of them continues
// after message 3, even the one that a runner has already created in the new installation. For each
// of them, ConsumerBeginsAfter must return true for message 3, and false for message 6.
func TestRestoreOfAGroupThatBeganLater(t *testing.T) {
	t.Parallel()
	js := registrytest.Start(t, natstest.Start(t).Connect(t)).JetStream
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	createRecorderConsumers(t, js)
	began := time.Now().Add(-time.Hour)
	group := stream.RunnerGroup{Queue: "default", Group: "g"}
	onlyNew := group.ConsumerConfig(stream.RunnerAckWait)
	onlyNew.DeliverPolicy = jetstream.DeliverNewPolicy
	lane := group.LaneConsumerConfig(0, &jetstream.ConsumerInfo{Config: onlyNew, Created: began})
	waiting := stream.RunnerGroup{Queue: "default", Group: "waiting"}
	waits := waiting.ConsumerConfig(stream.RunnerAckWait)
	waits.DeliverPolicy = jetstream.DeliverNewPolicy
	_, err := stream.EnsureRunnerConsumer(t.Context(), js, waiting, waits)
	check(err)

	file := sound(t)
	file.manifest.Streams[0].GroupPositions = []RunnerGroupPosition{
		{Config: onlyNew, AckFloor: 3}, {Config: lane, AckFloor: 3}, {Config: waits, AckFloor: 3},
	}
	_, err = Restore(t.Context(), Installation{JetStream: js, Progress: io.Discard, API: recordsAPI{
		restore: func() error { return nil },
	}}, file.write(t), RestoreOptions{WithMessages: true})
	check(err)
	for _, config := range []jetstream.ConsumerConfig{onlyNew, lane, waits} {
		consumer, err := stream.EnsureRunnerConsumer(t.Context(), js, group, config)
		check(err)
		info := consumer.CachedInfo()
		if info.AckFloor.Stream != 3 || info.Paused {
			t.Errorf("%s: goes on after %d, paused %t", info.Name, info.AckFloor.Stream,
				info.Paused)
		}
		now := time.Now()
		if !stream.ConsumerBeginsAfter(info, 3, now) || stream.ConsumerBeginsAfter(info, 6, now) {
			t.Errorf("%s: began after message 3: %t, after 6: %t", info.Name,
				stream.ConsumerBeginsAfter(info, 3, now), stream.ConsumerBeginsAfter(info, 6, now))
		}
		if config.FilterSubject != onlyNew.FilterSubject {
			continue // the file has no message for the lane
		}
		msg, err := consumer.Next()
		check(err)
		if meta, err := msg.Metadata(); err != nil || meta.Sequence.Stream != 6 {
			t.Errorf("%s: got %+v, %v", info.Name, meta, err)
		}
	}
}

// unsteadyJetStream simulates the election of a leader: for each consumer, the first call that
// resets it and the first call that resumes it fail.
type unsteadyJetStream struct {
	jetstream.JetStream

	failed map[string]bool // keyed by call, stream and consumer
}

func (js unsteadyJetStream) failOnce(call, stream, consumer string) error {
	key := call + " " + stream + " " + consumer
	if js.failed[key] {
		return nil
	}
	js.failed[key] = true
	return errors.New("no leader")
}

func (js unsteadyJetStream) ResetConsumerToSequence(
	ctx context.Context, stream, consumer string, sequence uint64,
) (*jetstream.ConsumerResetResponse, error) {
	if err := js.failOnce("reset", stream, consumer); err != nil {
		return nil, err
	}
	return js.JetStream.ResetConsumerToSequence(ctx, stream, consumer, sequence)
}

func (js unsteadyJetStream) ResumeConsumer(
	ctx context.Context, stream, consumer string,
) (*jetstream.ConsumerPauseResponse, error) {
	if err := js.failOnce("resume", stream, consumer); err != nil {
		return nil, err
	}
	return js.JetStream.ResumeConsumer(ctx, stream, consumer)
}

// The last steps of a restore are repeated while NATS elects a leader. If everything is restored,
// but not every process confirms it, the error does not tell the operator to begin again.
func TestRestoreThatIsNotConfirmed(t *testing.T) {
	t.Parallel()
	js := registrytest.Start(t, natstest.Start(t).Connect(t)).JetStream
	createRecorderConsumers(t, js)
	unsteady := unsteadyJetStream{js, map[string]bool{}}
	away := errors.New("the executor is away")
	_, err := Restore(t.Context(), Installation{
		JetStream: unsteady, Progress: io.Discard,
		API: recordsAPI{restore: func() error { return nil }, appliedErr: away},
	}, sound(t).write(t), RestoreOptions{WithMessages: true})
	if _, ok := errors.AsType[*RestoreUnconfirmedError](err); !ok || !errors.Is(err, away) ||
		strings.Contains(err.Error(), "begin again") ||
		!strings.Contains(err.Error(), "everything is restored") {
		t.Errorf("the restore ended with %v", err)
	}
	if len(unsteady.failed) != 4 {
		t.Errorf("the calls that failed once: %v", unsteady.failed)
	}
	identity, _, err := edit.ReadInstallation(t.Context(), js)
	if err != nil || identity.Restoring {
		t.Errorf("%+v, %v", identity, err)
	}
}

// A stream whose deduplication window was raised may have several messages with the same ID within
// the new window. A restore keeps all of them, and the stream still treats another message with
// that ID as a duplicate.
func TestRestoreAfterTheWindowWasRaised(t *testing.T) {
	t.Parallel()
	js := registrytest.Start(t, natstest.Start(t).Connect(t)).JetStream
	createRecorderConsumers(t, js)
	file := sound(t)
	file.manifest.Streams[0].DedupWindow = stream.DefaultSettings.DedupWindow
	messages := file.messages[streamEntryName(stream.ExecutionsName)]
	for n := range messages {
		messages[n].StoredAt = time.Now().Add(time.Duration(n-2) * time.Hour)
		messages[n].Headers = map[string][]string{jetstream.MsgIDHeader: {"delivery"}}
	}
	if _, err := Restore(t.Context(), Installation{
		JetStream: js, Progress: io.Discard, API: recordsAPI{restore: func() error { return nil }},
	}, file.write(t), RestoreOptions{WithMessages: true}); err != nil {
		t.Fatal(err)
	}
	ack, err := js.Publish(t.Context(), messages[0].Subject, nil, jetstream.WithMsgID("delivery"))
	if err != nil || !ack.Duplicate || ack.Sequence != messages[0].Sequence {
		t.Errorf("a repeat: %+v, %v", ack, err)
	}
}
