package apiserver

import (
	"time"

	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/executor/internal/operate"
	"github.com/hookstart/hookstart/executor/internal/signin"
)

// Config is all that the API needs. What has no default is required. The API owns
// none of it, and stops nothing.
type Config struct {
	// Operate answers the calls.
	Operate *operate.Service

	// SignIn tells operators from strangers.
	SignIn *signin.SignIn

	// Origins are the sites whose pages may read the API's answers, with a token or key of their own: like
	// https://app.example.com. None: no site's.
	Origins []string

	// Done ends the event streams when it is closed: at the beginning of a shutdown, which
	// would wait for them. nil: never.
	Done <-chan struct{}

	// KeepAlive is how often an event stream without events shows that it lives. Zero: 15 s.
	KeepAlive time.Duration

	// Log gets one event for each request.
	Log logrus.FieldLogger
}

const defaultKeepAlive = 15 * time.Second
