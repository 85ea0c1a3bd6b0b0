package backup

import (
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/stream/keyvalue"
)

// Manifest describes the content of a backup file.
type Manifest struct {
	FormatVersion int       `json:"format"`
	Version       string    `json:"version"` // version of the program that wrote the file
	TakenAt       time.Time `json:"takenAt"`
	WithMessages  bool      `json:"withMessages"`
	// ExecutionCount is the number of executions in the database.
	ExecutionCount int           `json:"records"`
	Streams        []SavedStream `json:"streams"`
	Buckets        []SavedBucket `json:"buckets"`
	// AuditEntryCount is the number of audit entries in audit.jsonl. It does not count the audit
	// entries in records.jsonl.
	AuditEntryCount int `json:"audit"`
	// KeyIDs holds the IDs of the keys that encrypt tokens and secrets in the file, sorted.
	KeyIDs []string `json:"keys"`
}

// SavedStream describes the part of a backup file that holds a stream.
type SavedStream struct {
	Name string `json:"name"`
	// FirstSequence and LastSequence are the sequences of the stream's oldest and newest messages.
	// If the stream was empty, FirstSequence is greater than LastSequence. A restore keeps the
	// sequences, because the records in the database refer to messages by sequence.
	FirstSequence  uint64                `json:"first"`
	LastSequence   uint64                `json:"last"`
	MessageCount   int                   `json:"messages"` // number of messages in the file
	RecordedUpTo   uint64                `json:"recorded"` // every message up to this sequence is in the records
	GroupPositions []RunnerGroupPosition `json:"consumers,omitempty"`
	// Subjects holds the subjects of the stream. It is empty if the file was written by a version
	// that did not store them.
	Subjects []string `json:"subjects,omitempty"`
	// DedupWindow is the stream's deduplication window. It is 0 if the file was written by a
	// version that did not store it.
	DedupWindow time.Duration `json:"dedup,omitempty"`
	// ForeignMessageCount is the number of messages that were left out of the file because their
	// subjects now belong to another stream: they were stored by an earlier version, which kept all
	// messages in one stream. Nothing is lost, because all of them have been recorded in the
	// database.
	ForeignMessageCount int `json:"foreign,omitempty"`
}

// RunnerGroupPosition holds the configuration of the consumer of a runner group, and how far the
// group had got.
type RunnerGroupPosition struct {
	Config jetstream.ConsumerConfig `json:"config"`
	// AckFloor is the sequence up to which every message has been acknowledged.
	AckFloor uint64 `json:"floor"`
}

// SavedBucket describes the part of a backup file that holds a bucket.
type SavedBucket struct {
	Name        string `json:"name"`
	RecordCount int    `json:"records"`
}

// message is one line in the part of a backup that holds a stream or a bucket: a message of the
// stream, or an entry of the bucket.
type message struct {
	Sequence uint64              `json:"sequence"`
	Subject  string              `json:"subject"`
	StoredAt time.Time           `json:"at"`
	Headers  map[string][]string `json:"headers,omitempty"`
	Data     []byte              `json:"data,omitempty"`
}

func (m message) natsMsg() *nats.Msg {
	return &nats.Msg{Subject: m.Subject, Header: nats.Header(m.Headers), Data: m.Data}
}

// isDeletion reports whether the message deletes a record of a bucket.
func (m message) isDeletion() bool { return keyvalue.IsDeletion(m.Headers) }

const (
	recordsEntryName = "records.jsonl"
	auditEntryName   = "audit.jsonl"
)

func streamEntryName(name string) string { return "streams/" + name }

func bucketEntryName(name string) string { return "buckets/" + name }
