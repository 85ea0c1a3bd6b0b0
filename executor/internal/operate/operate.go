// Package operate has one method for each thing that an operator can ask of an executor.
// The operators' API and the console only translate: requests into calls, results into
// JSON or pages. It knows nothing of HTTP.
package operate

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/trace"

	"github.com/hookstart/hookstart/executor/internal/changes"
	"github.com/hookstart/hookstart/executor/internal/queues"
	"github.com/hookstart/hookstart/executor/internal/reach"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/tryout"
	"github.com/hookstart/hookstart/shared/registry/agree"
	"github.com/hookstart/hookstart/shared/registry/edit"
)

// Config is all that a Service needs. What has no default is required. The service owns
// none of it, and stops nothing.
type Config struct {
	// Editor makes the changes.
	Editor *edit.Editor
	// Directory answers what accounts and workflows there are. It is the one that Editor
	// works with: after a change, it has it.
	Directory *edit.Directory
	// Roll knows what the live ingresses were told.
	Roll *agree.Roll
	// Store has the records.
	Store store.Store
	// AuditCaughtUp waits until the changes that were made are in the audit, or its context ends. nil: lists of the
	// audit do not wait.
	AuditCaughtUp func(context.Context)
	// JetStream has the stream EXECUTIONS: requests are read from it, reruns put into it.
	JetStream jetstream.JetStream
	// Consumer is the name of the recorder's consumer: what it has not acknowledged is not
	// recorded yet.
	Consumer string
	// Queues looks at what waits in the queues, and who takes it.
	Queues *queues.Watch
	// Changes tells watchers which records changed.
	Changes *changes.Changes
	// Keyring knows the keys. nil: nobody has one.
	Keyring *Keyring

	// PublicURL is where senders reach the ingresses, without /webhooks. Empty: what a live
	// ingress was told, else http://127.0.0.1:8080.
	PublicURL string
	// Reach checks where the public URL leads.
	Reach *reach.Checker
	// Tryout posts to the endpoint what a sender would.
	Tryout *tryout.Client

	// DefaultPlan is the plan of new accounts that name none. Empty: they must name one.
	DefaultPlan string
	// ChangeTimeout is how long a change of the registry may take, with the confirmation by
	// every live process. Zero: 10 s.
	ChangeTimeout time.Duration
	// Tracer makes the spans of reruns, in which their traces begin. nil: tracing is off.
	Tracer trace.Tracer
}

const (
	defaultChangeTimeout = 10 * time.Second
	// readTimeout is how long a call may read the database and the stream.
	readTimeout = 5 * time.Second
)

// Service answers the calls. It is safe for concurrent use. Every error of its methods is
// an *Error.
type Service struct {
	config     Config
	executions atomic.Pointer[jetstream.Stream]
}

// New makes the service.
func New(c Config) *Service {
	if c.ChangeTimeout == 0 {
		c.ChangeTimeout = defaultChangeTimeout
	}
	c.PublicURL = strings.TrimRight(c.PublicURL, "/")
	return &Service{config: c}
}
