package apiserver

import (
	"net/http"
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

	// AdminToken opens the API. Empty: no token does.
	AdminToken string
	// Authorized lets further requests in, by what it finds in them. nil: none. It is asked
	// when the admin token is not there, and must not touch the body. If it goes by a cookie,
	// it must look at the origin, too: the API does not.
	Authorized func(*http.Request) bool

	// Failures counts wrong tokens, and makes them wait. nil: nobody does.
	Failures *signin.Failures

	// Done ends the event streams when it is closed: at the beginning of a shutdown, which
	// would wait for them. nil: never.
	Done <-chan struct{}

	// KeepAlive is how often an event stream without events shows that it lives. Zero: 15 s.
	KeepAlive time.Duration

	// Log gets one event for each request.
	Log logrus.FieldLogger
}

const defaultKeepAlive = 15 * time.Second
