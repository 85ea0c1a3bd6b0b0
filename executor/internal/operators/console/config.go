package console

import (
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/operators/signin"
)

// Config holds the dependencies of a Console. The Console uses them, but does not close them. A
// field is required unless its comment describes its zero value.
type Config struct {
	// Operate provides the data shown on the pages.
	Operate *operate.Service

	// SignIn authenticates operators. It must be the Authenticator of the API below /api/, because
	// the scripts of the pages call the API with the console's session.
	SignIn *signin.Authenticator
	// DemoQueue is the queue of this process's demo runner. "" means that there is none.
	DemoQueue string

	// Log receives one event per request.
	Log logrus.FieldLogger
}
