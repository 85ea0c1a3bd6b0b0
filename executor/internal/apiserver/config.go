package apiserver

import (
	"time"

	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/executor/internal/operate"
	"github.com/hookstart/hookstart/executor/internal/signin"
)

// Config has the parts of the API. A field without a documented default is required. The API owns none of them.
type Config struct {
	// Operate answers the calls.
	Operate *operate.Service

	// SignIn tells operators from strangers.
	SignIn *signin.SignIn

	// Origins are sites, like https://app.example.com, whose pages may call the API with a key of their own. None: no site.
	Origins []string

	// Done ends the event streams when it is closed, as a shutdown begins, which would wait for them. nil: never.
	Done <-chan struct{}

	// KeepAlive is how often an event stream without events shows that it lives. Zero: 15 s.
	KeepAlive time.Duration

	// Log gets one event for each request.
	Log logrus.FieldLogger
}

const defaultKeepAlive = 15 * time.Second
