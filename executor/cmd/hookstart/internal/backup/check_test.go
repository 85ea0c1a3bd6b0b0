package backup

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/seal"
	"github.com/hookstart/hookstart/shared/stream"
)

// contents describes a backup file for a test to write.
type contents struct {
	manifest Manifest
	messages map[string][]message // keyed by the name of the ZIP entry
	records  []string
	audit    []string
}

func sound(t *testing.T) contents {
	t.Helper()
	account, err := (&registry.Account{ID: "acme", Name: "Acme", Plan: "pro"}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	start := stream.StartSubject("default", "wf", "node")
	return contents{
		manifest: Manifest{
			FormatVersion:   currentFormatVersion,
			Version:         "test",
			TakenAt:         time.Now(),
			WithMessages:    true,
			ExecutionCount:  2,
			AuditEntryCount: 1,
			Streams: []SavedStream{
				{
					Name: stream.ExecutionsName, FirstSequence: 3, LastSequence: 6, MessageCount: 2,
					RecordedUpTo: 4,
				},
				{Name: stream.ProgressName, FirstSequence: 1, LastSequence: 0},
				{Name: stream.ReportsName, FirstSequence: 1, LastSequence: 0},
			},
			Buckets: []SavedBucket{
				{Name: registry.Bucket, RecordCount: 1},
				{Name: registry.SecretsBucket},
			},
		},
		messages: map[string][]message{
			streamEntryName(stream.ExecutionsName): {
				{Sequence: 3, Subject: start}, {Sequence: 6, Subject: start},
			},
			streamEntryName(stream.ProgressName): nil, streamEntryName(stream.ReportsName): nil,
			bucketEntryName(registry.Bucket): {
				{
					Sequence: 1,
					Subject:  registry.SubjectOf(registry.Bucket, "account.acme"),
					Data:     account,
				},
			},
			bucketEntryName(registry.SecretsBucket): nil,
		},
		records: []string{`{"Records":[{},{}]}`},
		audit:   []string{`{"Audit":[{"ID":"a"}]}`},
	}
}

// addOwn adds the two streams that belong only to the queue "default": one with a start message at
// the given sequence, and one with a report at sequence 1. p is the layout of the start message's
// subject. Check must reject the file unless p is the layout of queues' own streams.
func (c *contents) addOwn(sequence uint64, p stream.Layout) {
	starts, reports := stream.OwnStreamName("default"), stream.OwnProgressStreamName("default")
	c.manifest.Streams = append(c.manifest.Streams,
		SavedStream{
			Name:          starts,
			FirstSequence: 1,
			LastSequence:  sequence,
			MessageCount:  1,
		}, SavedStream{
			Name:          reports,
			FirstSequence: 1,
			LastSequence:  1,
			MessageCount:  1,
		})
	c.messages[streamEntryName(starts)] = []message{
		{Sequence: sequence, Subject: p.StartSubject("default", "wf", "node")},
	}
	c.messages[streamEntryName(reports)] = []message{
		{
			Sequence: 1,
			Subject:  stream.Layout{Own: true}.ProgressSubject("default", "wf", "execution"),
		},
	}
}

func (c contents) write(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "hookstart.backup")
	w, err := createWriter(path)
	if err != nil {
		t.Fatal(err)
	}
	defer w.discard()
	part := func(name string, lines []string) {
		to, err := w.createEntry(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range lines {
			if err := writeLine(to, []byte(line)); err != nil {
				t.Fatal(err)
			}
		}
	}
	part(recordsEntryName, c.records)
	part(auditEntryName, c.audit)
	for name, messages := range c.messages {
		var lines []string
		for _, m := range messages {
			line, err := json.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, string(line))
		}
		part(name, lines)
	}
	if err := w.writeManifestAndTrailer(c.manifest); err != nil {
		t.Fatal(err)
	}
	if err := w.commit(); err != nil {
		t.Fatal(err)
	}
	return path
}

// Check accepts a file that can be restored. It rejects every other file, with an error that names
// the problem.
func TestCheck(t *testing.T) {
	t.Parallel()
	executions, buckets := streamEntryName(stream.ExecutionsName), bucketEntryName(registry.Bucket)
	report := stream.ProgressSubject("default", "wf", "execution")
	for what, c := range map[string]struct {
		change func(*contents)
		want   string // "" means that the file can be restored
	}{
		"as it was made": {func(*contents) {}, ""},
		"a report that is recorded, on a stream that had them once": {func(c *contents) {
			c.messages[executions][0].Subject = report
		}, ""},
		"one that is not recorded": {func(c *contents) {
			c.messages[executions][1].Subject = report
		}, "message 6 has the subject " + report},
		"messages that are not in order": {func(c *contents) {
			c.messages[executions][1].Sequence = 3
		}, "message 3 is not in order"},
		"a message after the last one": {func(c *contents) {
			c.messages[executions][1].Sequence = 7
		}, "message 7 is not in order"},
		"a message that is missing": {func(c *contents) {
			c.messages[executions] = c.messages[executions][:1]
		}, "there are 1 messages, and must be 2"},
		"a consumer beyond the end": {func(c *contents) {
			c.manifest.Streams[0].GroupPositions = []RunnerGroupPosition{{AckFloor: 7}}
		}, "has acknowledged 7 of 6"},
		"a stream of another version": {func(c *contents) {
			c.manifest.Streams = append(c.manifest.Streams, SavedStream{Name: "ELSEWHERE"})
		}, "there is no stream ELSEWHERE in this version"},
		"a queue's own streams": {func(c *contents) {
			c.addOwn(2, stream.Layout{Own: true})
		}, ""},
		"a start of the shared stream in an own one": {func(c *contents) {
			c.addOwn(2, stream.Layout{})
		}, "stream QUEUE_default: message 2 has the subject " +
			stream.StartSubject("default", "wf", "node")},
		"an own stream of a queue that cannot be one": {func(c *contents) {
			c.manifest.Streams = append(c.manifest.Streams,
				SavedStream{Name: stream.OwnStreamName("a b")})
		}, "there is no stream QUEUE_a b in this version"},
		"a record that is missing": {func(c *contents) {
			c.records = []string{`{"Records":[{}]}`}
		}, "there are 1 records, and must be 2"},
		"a record that is no JSON": {func(c *contents) {
			c.records = []string{`{"Records":`}
		}, "records.jsonl: line 1"},
		"an entry of the audit is missing": {func(c *contents) {
			c.audit = nil
		}, "there are 0 entries of the audit, and must be 1"},
		"an account that cannot be read": {func(c *contents) {
			c.messages[buckets][0].Data = []byte{0xff}
		}, "$KV.registry.account.acme"},
		"a record of a kind that this version does not know": {func(c *contents) {
			c.messages[buckets][0].Subject = registry.SubjectOf(registry.Bucket, "feature.x")
		}, "no such kind"},
		"a record of another bucket": {func(c *contents) {
			c.messages[buckets][0].Subject = "$KV.other.account.acme"
		}, "not the bucket's"},
		"an account that is missing": {func(c *contents) {
			c.messages[buckets] = nil
		}, "there are 0 records, and must be 1"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			of := sound(t)
			c.change(&of)
			_, err := Check(of.write(t))
			if c.want == "" && err != nil ||
				c.want != "" &&
					(err == nil || !strings.Contains(err.Error(), c.want) ||
						strings.Contains(err.Error(), "\n")) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// Check returns the key IDs, even for a file written by an earlier version, which did not store
// them in the manifest.
func TestCheckFindsTheKeys(t *testing.T) {
	t.Parallel()
	box := append([]byte{1, 2}, "k7 and what is sealed"...)
	if id := seal.KeyID(box); id != "k7" {
		t.Fatal(id)
	}
	secrets, err := (&registry.TriggerSecrets{SealedContent: box}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	of := sound(t)
	of.messages[bucketEntryName(registry.SecretsBucket)] = []message{
		{
			Sequence: 1, Subject: registry.SubjectOf(registry.SecretsBucket, "wf.node"),
			Data: secrets,
		},
	}
	of.manifest.Buckets[1].RecordCount = 1
	m, err := Check(of.write(t))
	if err != nil || len(m.KeyIDs) != 1 || m.KeyIDs[0] != "k7" {
		t.Errorf("%v, %v", m.KeyIDs, err)
	}
}
