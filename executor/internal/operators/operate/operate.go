// Package operate implements what operators can do; each operation is a method of Service. The
// operators' API and the console only translate requests to calls, and results to JSON or pages.
// Package signin identifies the caller. This package is independent of HTTP.
//
// All operations have the same shape. The Caller is the argument after the context. The method
// builds the access rule of its operation: the minimum role, from the table operations, and a check
// that the caller may access the account concerned. It passes the rule, and a function that does
// the work, to one of the helpers in access.go. The helper checks the rule, sets a deadline, and
// calls the function; for a change, it also records the caller for the audit log. A caller with
// access to one account gets the same error for an object of another account as for one that does
// not exist.
//
// A method that changes the registry returns once every live process has applied the change (see
// package consistency). If that takes too long, the error has the code api.CodeNotConfirmed: the
// change may be in force, and repeating it is safe.
//
// Within this package, functions return the errors of the registry, the database and NATS
// unchanged. The helpers in access.go pass each of them to toError, which converts it to an *Error
// with a code of package api and a text that operators may see.
//
// The files by topic:
//   - executions: executions, counts, watch, streams; rerun, replay, requeue, cancel, bulk
//   - dead letters: deadletters, bulkdeadletters, recover
//   - requests that were refused: refusals
//   - the registry: accounts, plan, workflows, triggers, senders, events, queues, queuestreams
//   - trying out a trigger's settings: sendtest, filtertrial, orderkey, recognize
//   - callers and their credentials: keys, keyring, sessions, audit
//   - the installation: endpoint, size, backup
//   - shared by all: operations, access, error, explain, page
package operate

import (
	"context"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/trace"

	"github.com/hookstart/hookstart/executor/internal/changes"
	"github.com/hookstart/hookstart/executor/internal/operators/queues"
	"github.com/hookstart/hookstart/executor/internal/operators/queuestreams"
	"github.com/hookstart/hookstart/executor/internal/operators/reachability"
	"github.com/hookstart/hookstart/executor/internal/operators/testsend"
	"github.com/hookstart/hookstart/executor/internal/starts"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/registry/consistency"
	"github.com/hookstart/hookstart/shared/registry/edit"
)

// Config holds the dependencies of a Service, which does not own them. A field without a documented
// default is required.
type Config struct {
	// Editor changes the registry.
	Editor *edit.Editor
	// RegistryIndex holds the accounts and workflows. It must be the Editor's own RegistryIndex, so
	// that it contains a change as soon as the Editor's method returns.
	RegistryIndex *edit.RegistryIndex
	// Membership tracks the live processes. Service reads the ingresses' settings from it.
	Membership *consistency.Membership
	// Store holds the records.
	Store store.Store
	// AwaitAuditLog waits until the audit log contains all changes made so far, or until its
	// context is done. nil means that lists of the audit log do not wait.
	AwaitAuditLog func(context.Context)
	// JetStream provides the streams of executions. Requests are read from them, and reruns are
	// published to them.
	JetStream jetstream.JetStream
	// RecorderConsumer is the name of the recorder's consumer. Messages that it has not
	// acknowledged are not recorded yet.
	RecorderConsumer string
	// OnRecordedLate is called when a message that was put aside has been recorded, with the time
	// at which its execution was accepted. It may be nil.
	OnRecordedLate func(accepted time.Time)
	// Queues reports how many executions wait in each queue, and which runners serve it.
	Queues *queues.Watcher
	// StreamMover moves queues to their own streams and back. nil means that no queue can have its
	// own stream.
	StreamMover *queuestreams.Mover
	// Changes announces changed records to watchers.
	Changes *changes.Notifier
	// Keyring looks up keys. nil means that there are none.
	Keyring *Keyring

	// PublicURL is the URL that senders use to reach the ingresses, without /webhooks. "" means the
	// URL of a live ingress, or http://127.0.0.1:8080 if there is none.
	PublicURL string
	// Reachability checks whether the public URL reaches an ingress of this installation.
	Reachability *reachability.Checker
	// TestSendClient sends test requests to the webhook endpoint.
	TestSendClient *testsend.Client

	// Retention is how long records are kept. The Service only reports it, in Size.
	Retention time.Duration

	// DefaultPlan is the plan of new accounts that do not name one. "" means that every new account
	// must name a plan.
	DefaultPlan string
	// ChangeTimeout is the maximum duration of a registry change, including its confirmation by
	// every live process. 0 means 10 s.
	ChangeTimeout time.Duration
	// MaxBulkItems is the maximum number of executions that one call can restart. It is also the
	// maximum number of executions that one call with a filter can cancel, and of dead letters that
	// one call with a filter can dismiss. 0 means 10,000.
	MaxBulkItems int
	// Tracer creates the root spans of reruns. nil disables tracing.
	Tracer trace.Tracer
}

const (
	defaultChangeTimeout = 10 * time.Second
	// readTimeout is the maximum duration of a call that reads the database and the streams.
	readTimeout = 5 * time.Second
)

// Service implements the operations. It is safe for concurrent use. Every error that its methods
// return is an *Error.
type Service struct {
	config           Config
	startStreams     *starts.Streams
	openEventStreams openEventStreamCounts
}

// New returns a Service. If a field of c is zero and has a documented default, New sets it to this
// default.
func New(c Config) *Service {
	if c.ChangeTimeout == 0 {
		c.ChangeTimeout = defaultChangeTimeout
	}
	if c.MaxBulkItems == 0 {
		c.MaxBulkItems = defaultMaxBulkItems
	}
	c.PublicURL = strings.TrimRight(c.PublicURL, "/")
	return &Service{config: c, startStreams: starts.New(c.JetStream)}
}
