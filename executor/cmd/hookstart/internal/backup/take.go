package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/stream"
)

// API is what is done through the operators' API.
type API interface {
	// BackUpRecords calls each for every line of the records.
	BackUpRecords(ctx context.Context, each func(line []byte) error) error
	// RestoreRecords writes one line; first: the database must be empty.
	RestoreRecords(ctx context.Context, line []byte, first bool) error
	// Confirm returns when an account's record is in force at every process.
	Confirm(ctx context.Context, accountID string) error
}

// Installation is what is backed up, or restored into.
type Installation struct {
	JetStream jetstream.JetStream // with the rights of an administrator
	API       API
	Version   string    // of this program
	Say       io.Writer // gets a line about each part that is done
}

func (i Installation) say(format string, args ...any) {
	_, _ = fmt.Fprintf(i.Say, format+"\n", args...)
}

// recorder is the name of the executors' consumers.
const recorder = "executor"

// bucketStream begins the name of the stream behind a bucket.
const bucketStream = "KV_"

// Take makes a file, replacing one of that name once it is complete.
func Take(ctx context.Context, i Installation, path string, withMessages bool) (m Manifest, err error) {
	w, err := create(path)
	if err != nil {
		return m, err
	}
	defer w.abandon()
	m = Manifest{Format: format, Version: i.Version, TakenAt: time.Now().UTC(), WithMessages: withMessages}
	if err := i.take(ctx, w, &m); err != nil {
		return m, err
	}
	return m, w.finish(m)
}

// take reads the parts in the order that the package's comment argues for.
func (i Installation) take(ctx context.Context, w *writer, m *Manifest) error {
	for _, name := range []string{stream.Name, stream.ProgressName, stream.ReportsName} {
		floor, err := i.floor(ctx, name)
		if err != nil {
			return err
		}
		m.Streams = append(m.Streams, Stream{Name: name, Recorded: floor})
	}
	var err error
	if m.Records, err = i.takeRecords(ctx, w); err != nil {
		return err
	}
	i.say("records: %d executions", m.Records)
	if m.Streams[0].Consumers, err = i.groups(ctx); err != nil {
		return err
	}
	for n := range m.Streams {
		if err := i.takeStream(ctx, w, &m.Streams[n], m.WithMessages); err != nil {
			return err
		}
		i.say("%s: %d messages", m.Streams[n].Name, m.Streams[n].Messages)
	}
	for _, name := range registry.Streams() {
		bucket := Bucket{Name: strings.TrimPrefix(name, bucketStream)}
		if bucket.Records, err = i.takeBucket(ctx, w, bucket.Name); err != nil {
			return err
		}
		m.Buckets = append(m.Buckets, bucket)
		i.say("bucket %s: %d records", bucket.Name, bucket.Records)
	}
	return nil
}

// floor is up to where the executors have recorded a stream.
func (i Installation) floor(ctx context.Context, name string) (uint64, error) {
	consumer, err := i.JetStream.Consumer(ctx, name, recorder)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return 0, nil // none of it
	}
	if err != nil {
		return 0, fmt.Errorf("how far the executors have recorded %s: %w", name, err)
	}
	return consumer.CachedInfo().AckFloor.Stream, nil
}

func (i Installation) takeRecords(ctx context.Context, w *writer) (executions int, err error) {
	to, err := w.entry(recordsName)
	if err != nil {
		return 0, err
	}
	err = i.API.BackUpRecords(ctx, func(line []byte) error {
		var part struct{ Records []struct{} }
		if err := json.Unmarshal(line, &part); err != nil {
			return fmt.Errorf("the records: %w", err)
		}
		executions += len(part.Records)
		return writeLine(to, line)
	})
	return executions, err
}

func writeLine(to io.Writer, line []byte) error {
	_, err := to.Write(append(bytes.TrimRight(line, "\n"), '\n'))
	return err
}

// groups are the groups of runners, and whoever else keeps his place in EXECUTIONS.
func (i Installation) groups(ctx context.Context) (groups []Consumer, err error) {
	s, err := i.JetStream.Stream(ctx, stream.Name)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", stream.Name, err)
	}
	list := s.ListConsumers(ctx)
	for info := range list.Info() {
		if info.Config.Durable != "" && info.Name != recorder {
			groups = append(groups, Consumer{Config: info.Config, Floor: info.AckFloor.Stream})
		}
	}
	if err := list.Err(); err != nil {
		return nil, fmt.Errorf("the consumers of %s: %w", stream.Name, err)
	}
	return groups, nil
}

// takeStream writes the messages that a stream holds now. Of REPORTS those are enough that are not applied.
func (i Installation) takeStream(ctx context.Context, w *writer, of *Stream, withMessages bool) error {
	s, err := i.JetStream.Stream(ctx, of.Name)
	if err != nil {
		return fmt.Errorf("stream %s: %w", of.Name, err)
	}
	to, err := w.entry(streamEntry(of.Name))
	if err != nil {
		return err
	}
	of.First, of.Last = max(s.CachedInfo().State.FirstSeq, 1), s.CachedInfo().State.LastSeq
	config := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy}
	if of.Name == stream.ReportsName {
		of.First = max(of.First, of.Recorded+1)
		config = jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: of.First}
	}
	if !withMessages || of.First > of.Last {
		return nil
	}
	return i.messages(ctx, of.Name, config, func(m message, pending uint64) (done bool, err error) {
		if m.Sequence > of.Last {
			return true, nil
		}
		of.Messages++
		return m.Sequence == of.Last || pending == 0, encodeLine(to, m)
	})
}

// takeBucket writes the newest record of each key. A key that changes meanwhile comes again, and is restored as it came last.
// It ends when each key of the beginning has come: the server's count of pending messages is too small while executors trim
// the history of keys (nats-server 2.15.2), and the newest records would be missing.
func (i Installation) takeBucket(ctx context.Context, w *writer, bucket string) (records int, err error) {
	to, err := w.entry(bucketEntry(bucket))
	if err != nil {
		return 0, err
	}
	s, err := i.JetStream.Stream(ctx, bucketStream+bucket)
	if err != nil {
		return 0, fmt.Errorf("bucket %s: %w", bucket, err)
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(">"))
	if err != nil {
		return 0, fmt.Errorf("bucket %s: %w", bucket, err)
	}
	missing := info.State.Subjects
	if len(missing) == 0 {
		return 0, nil
	}
	config := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, FilterSubjects: []string{">"}}
	began := info.State.LastSeq
	live := map[string]bool{}
	err = i.messages(ctx, bucketStream+bucket, config, func(m message, _ uint64) (done bool, err error) {
		delete(missing, m.Subject)
		deleted := len(m.Headers[kvOperation]) > 0
		live[m.Subject] = !deleted
		if !deleted || m.Sequence > began { // else its record is not in the file
			err = encodeLine(to, m)
		}
		return len(missing) == 0, err
	})
	for _, is := range live {
		if is {
			records++
		}
	}
	return records, err
}

// kvOperation is the header of a deletion in a bucket.
const kvOperation = "KV-Operation"

func encodeLine(to io.Writer, m message) error {
	line, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return writeLine(to, line)
}

// expectation begins the headers that say what a stream held when a message was stored. They hold no more.
const expectation = "Nats-Expected-"

// silence is how long no message may come while some are there.
const silence = 30 * time.Second

// messages calls each for the messages of a stream, with how many are said to come after it, until each says that it is done.
func (i Installation) messages(ctx context.Context, name string, config jetstream.OrderedConsumerConfig, each func(m message, pending uint64) (done bool, err error)) error {
	consumer, err := i.JetStream.OrderedConsumer(ctx, name, config)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	defer messages.Stop()
	for {
		waiting, cancel := context.WithTimeout(ctx, silence)
		msg, err := messages.Next(jetstream.NextContext(waiting))
		cancel()
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		meta, err := msg.Metadata()
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		headers := msg.Headers()
		maps.DeleteFunc(headers, func(name string, _ []string) bool { return strings.HasPrefix(name, expectation) })
		done, err := each(message{Sequence: meta.Sequence.Stream, Subject: msg.Subject(), At: meta.Timestamp.UTC(), Headers: headers, Data: msg.Data()}, meta.NumPending)
		if done || err != nil {
			return err
		}
	}
}
