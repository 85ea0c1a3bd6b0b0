package apiserver

import (
	"time"

	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/executor/internal/operate"
	"github.com/hookstart/hookstart/executor/internal/signin"
)

// Config holds the parts that the API uses, but does not own. A field without a documented default
// is required.
type Config struct {
	// Operate answers the calls.
	Operate *operate.Service

	// SignIn authenticates operators.
	SignIn *signin.SignIn

	// Origins are sites, like https://app.example.com, whose pages may call the API with a key of
	// their own. nil means that there are none.
	Origins []string

	// Done ends the event streams when it is closed, at the beginning of a shutdown, which would
	// wait for them otherwise. nil means that this never happens.
	Done <-chan struct{}

	// KeepAlive is the interval at which an event stream without events sends a sign of life. 0
	// means 15 s.
	KeepAlive time.Duration

	// Log receives one log event for each request.
	Log logrus.FieldLogger
}

const defaultKeepAlive = 15 * time.Second
