package apiserver

import (
	"time"

	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/operators/signin"
)

// Config holds the dependencies and settings of the API. The API does not own the dependencies. A
// field is required unless its comment describes its zero value.
type Config struct {
	// Operate carries out the operations that the API offers.
	Operate *operate.Service

	// SignIn authenticates operators.
	SignIn *signin.Authenticator

	// AllowedOrigins lists the origins, like https://app.example.com, of pages that may call the
	// API with a key. nil means none.
	AllowedOrigins []string

	// ShutdownStarted is closed when a shutdown begins. Event streams then end, because the
	// shutdown would otherwise wait for them. nil means that a shutdown does not end event streams.
	ShutdownStarted <-chan struct{}

	// KeepAliveInterval is how often an event stream without events sends a comment, to keep the
	// connection alive. 0 means 15 s.
	KeepAliveInterval time.Duration

	// Log receives one log event for each request.
	Log logrus.FieldLogger
}

const defaultKeepAliveInterval = 15 * time.Second
