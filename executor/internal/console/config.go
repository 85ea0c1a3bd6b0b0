package console

import (
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/executor/internal/operate"
	"github.com/hookstart/hookstart/executor/internal/signin"
)

// Config is all that the console needs. What has no default is required. The console
// owns none of it, and stops nothing.
type Config struct {
	// Operate answers what pages show.
	Operate *operate.Service

	// AdminToken signs in. Sessions are signed with a key made of it: executors with the same
	// token accept each other's, and a new token ends them all.
	AdminToken string
	// Failures counts failed sign-ins, and makes them wait. nil: nobody does.
	Failures *signin.Failures
	// SignInOnce signs in without the token, once and within ten minutes: GET /sign-in?once=…
	// Empty: nothing does.
	SignInOnce string
	// DemoQueue is the queue that the demo runner of this process takes. Empty: there is none.
	DemoQueue string

	// Log gets one event for each request.
	Log logrus.FieldLogger
}
