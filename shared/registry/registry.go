// Package registry defines the records that determine which requests may start executions:
// accounts, plans, workflows, trigger nodes and their tokens. It also contains the Snapshot of
// these records, which an ingress reads without a lock.
//
// The records are stored in a JetStream KV bucket, the source of truth. Package edit changes them.
// Package consistency delivers every change, in order, to every process, and waits until all of
// them have applied it.
//
// That bucket contains only hashes of tokens. The tokens themselves and the sample payloads are in
// a second bucket, which an ingress may not read.
package registry

import (
	"fmt"
	"strings"
	"time"

	"github.com/hookstart/hookstart/shared/stream/keyvalue"
)

// The names of the buckets. SecretsBucket contains the tokens and the sample payloads; Bucket
// contains all other records.
const (
	Bucket        = "registry"
	SecretsBucket = "registry_secrets"
)

// Stream is the name of the stream behind Bucket.
const Stream = keyvalue.StreamPrefix + Bucket

// Streams returns the names of the streams that store the buckets.
func Streams() []string { return []string{Stream, StreamOf(SecretsBucket)} }

// StreamOf returns the name of the stream behind a bucket.
func StreamOf(bucket string) string { return keyvalue.StreamPrefix + bucket }

// BucketOf returns the name of the bucket that a stream stores.
func BucketOf(stream string) string { return strings.TrimPrefix(stream, keyvalue.StreamPrefix) }

// AuditConsumer is the name of a durable consumer that each of Streams has. All executors share the
// consumer, and copy audit entries from it to the database.
const AuditConsumer = "audit"

// MirrorStreams returns the names of the streams that make up the mirror of the registry, which
// ingresses read: see edit.EnsureMirror.
func MirrorStreams() []string { return []string{Stream} }

// The keys of Bucket. The plan catalog and the installation's identity have one key each. Accounts,
// workflows, API keys, and queues that have settings are stored one per key, which consists of a
// prefix and the ID or name.
const (
	PlansKey        = "plans"
	InstallationKey = "installation"
	AccountPrefix   = "account."
	WorkflowPrefix  = "workflow."
	APIKeyPrefix    = "key."
	QueuePrefix     = "queue."
)

// AuditHeader is the name of the message header that holds the audit entry of a stored record: who
// made the change, and what it changed. See package edit.
const AuditHeader = "Hookstart-Audit"

// Change is one revision of the registry: it holds the new record, or the ID of a deleted record.
// Exactly one of the fields below StoredAt is set.
type Change struct {
	Revision uint64 // the sequence of the message in the bucket's stream
	// StoredAt is when the server stored the revision.
	StoredAt time.Time

	Plans    Plans // the new plan catalog; may be empty, but not nil, if it is set
	Account  *Account
	Workflow *Workflow
	APIKey   *APIKey // ingresses ignore it
	Queue    *Queue  // queues are never deleted
	// Installation is the registry's new identity, or points to a zero Installation if the identity
	// was deleted.
	Installation *Installation

	DeletedAccount  string
	DeletedWorkflow string
	DeletedAPIKey   string
}

// SubjectOf returns the subject on which the stream behind a bucket stores the values of a key.
func SubjectOf(bucket, key string) string { return keyvalue.SubjectPrefix + bucket + "." + key }

// subjectPrefix begins the subject of every message in Bucket's stream.
var subjectPrefix = SubjectOf(Bucket, "")

// DecodeChange decodes a message of the bucket's stream. deleted reports whether the message is a
// deletion, revision is its sequence, at is when it was stored, and data is the encoded record.
func DecodeChange(
	subject string, deleted bool, revision uint64, at time.Time, data []byte,
) (c Change, err error) {
	c = Change{Revision: revision, StoredAt: at}
	key := strings.TrimPrefix(subject, subjectPrefix)
	kind, id, _ := strings.Cut(key, ".")
	switch kind += "."; {
	case key == PlansKey:
		c.Plans, err = DecodePlans(data)
	case key == InstallationKey && deleted:
		c.Installation = &Installation{}
	case key == InstallationKey:
		c.Installation, err = DecodeInstallation(data)
	case kind == AccountPrefix && deleted:
		c.DeletedAccount = id
	case kind == AccountPrefix:
		c.Account, err = DecodeAccount(data)
	case kind == WorkflowPrefix && deleted:
		c.DeletedWorkflow = id
	case kind == WorkflowPrefix:
		c.Workflow, err = DecodeWorkflow(data)
	case kind == APIKeyPrefix && deleted:
		c.DeletedAPIKey = id
	case kind == APIKeyPrefix:
		c.APIKey, err = DecodeAPIKey(data)
	case kind == QueuePrefix && !deleted:
		c.Queue, err = DecodeQueue(data)
	default:
		err = fmt.Errorf("no such kind of key: %.80q", key)
	}
	return c, err
}
