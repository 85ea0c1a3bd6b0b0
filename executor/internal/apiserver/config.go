package apiserver

import (
	"net/http"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/sirupsen/logrus"
	"go.opentelemetry.io/otel/trace"

	"github.com/hookstart/hookstart/executor/internal/changes"
	"github.com/hookstart/hookstart/executor/internal/reach"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/registry"
)

// Config is all that the API needs. What has no default is required. The API owns
// none of it, and stops nothing.
type Config struct {
	// Editor makes the changes.
	Editor *registry.Editor
	// Directory answers what accounts and workflows there are. It is the one that Editor
	// works with: after a change, it has it.
	Directory *registry.Directory
	// Roll knows what the ingresses that live were told.
	Roll *registry.Roll
	// Store has the records.
	Store store.Store
	// JetStream has the stream EXECUTIONS: requests are read from it, reruns put into it.
	JetStream jetstream.JetStream
	// Changes feeds the event streams.
	Changes *changes.Changes

	// AdminToken opens the API. Empty: no token does.
	AdminToken string
	// Authorized lets further requests in, by what it finds in them. nil: none. It is asked
	// when the admin token is not there, and must not touch the body. If it goes by a cookie,
	// it must look at the origin, too: the API does not.
	Authorized func(*http.Request) bool

	// PublicURL is where senders reach the ingresses, without /webhooks. Empty: what a live
	// ingress was told, else http://127.0.0.1:8080.
	PublicURL string

	// Reach checks where the public URL leads.
	Reach *reach.Checker

	// Done ends the event streams when it is closed: at the beginning of a shutdown, which
	// would wait for them. nil: never.
	Done <-chan struct{}

	// ChangeTimeout is how long a change of the registry may take, with the confirmation by
	// every live process. Zero: 10 s.
	ChangeTimeout time.Duration
	// KeepAlive is how often an event stream without events shows that it lives. Zero: 15 s.
	KeepAlive time.Duration

	// Tracer makes the spans of reruns, in which their traces begin. nil: tracing is off.
	Tracer trace.Tracer
	// Log gets one event for each request.
	Log logrus.FieldLogger
}

const (
	defaultChangeTimeout = 10 * time.Second
	defaultKeepAlive     = 15 * time.Second
)

// readTimeout is how long a request may read the database and the stream, and wait for
// the stream's confirmation of a rerun.
const readTimeout = 5 * time.Second
