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

	// SignIn tells operators from strangers. The browser also calls the API, below /api/, which
	// must have the same.
	SignIn *signin.SignIn
	// DemoQueue is the queue that the demo runner of this process takes. Empty: there is none.
	DemoQueue string

	// Log gets one event for each request.
	Log logrus.FieldLogger
}
