package backup

import (
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Manifest says what a file holds.
type Manifest struct {
	Format       int       `json:"format"`
	Version      string    `json:"version"` // of the program that made it
	TakenAt      time.Time `json:"takenAt"`
	WithMessages bool      `json:"withMessages"`
	// Records is how many executions the database had.
	Records int      `json:"records"`
	Streams []Stream `json:"streams"`
	Buckets []Bucket `json:"buckets"`
	// Audit is how many entries of the audit the file holds beside what is in the records.
	Audit int `json:"audit"`
	// Keys are the IDs of the keys that tokens and secrets in the file are sealed with, in order.
	Keys []string `json:"keys"`
}

// Stream is what a file holds of a stream.
type Stream struct {
	Name string `json:"name"`
	// First and Last are the sequences of its oldest and newest message; First > Last: it was empty. Records refer to them.
	First     uint64     `json:"first"`
	Last      uint64     `json:"last"`
	Messages  int        `json:"messages"` // in the file
	Recorded  uint64     `json:"recorded"` // all up to this sequence is in the records
	Consumers []Consumer `json:"consumers,omitempty"`
	// Subjects are the wildcards that the stream stores; empty in files of before they were kept.
	Subjects []string `json:"subjects,omitempty"`
	// Dedup is for how long the stream recognised repeats; 0 in files of before it was kept.
	Dedup time.Duration `json:"dedup,omitempty"`
	// Foreign is how many messages were left out because their subjects are another stream's by
	// now. What they say is in the records.
	Foreign int `json:"foreign,omitempty"`
}

// Consumer is how far a group of runners was.
type Consumer struct {
	Config jetstream.ConsumerConfig `json:"config"`
	Floor  uint64                   `json:"floor"` // all up to this sequence is acknowledged
}

// Bucket is what a file holds of a bucket.
type Bucket struct {
	Name    string `json:"name"`
	Records int    `json:"records"`
}

// message is one line of a stream or a bucket.
type message struct {
	Sequence uint64              `json:"sequence"`
	Subject  string              `json:"subject"`
	At       time.Time           `json:"at"`
	Headers  map[string][]string `json:"headers,omitempty"`
	Data     []byte              `json:"data,omitempty"`
}

func (m message) msg() *nats.Msg {
	return &nats.Msg{Subject: m.Subject, Header: nats.Header(m.Headers), Data: m.Data}
}

// deletes reports whether the message deletes a record of a bucket.
func (m message) deletes() bool { return len(m.Headers[kvOperation]) > 0 }

const (
	recordsName = "records.jsonl"
	auditName   = "audit.jsonl"
)

func streamEntry(name string) string { return "streams/" + name }

func bucketEntry(name string) string { return "buckets/" + name }

// bucketSubject is the subject of a key of a bucket.
func bucketSubject(bucket, key string) string { return "$KV." + bucket + "." + key }
