package console

import (
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/executor/internal/operate"
	"github.com/hookstart/hookstart/executor/internal/signin"
)

// Config has the parts that the console uses, and does not own. A field without a documented default is required.
type Config struct {
	// Operate answers what pages show.
	Operate *operate.Service

	// SignIn authenticates operators. The browser also calls the API, below /api/, which must use the same SignIn.
	SignIn *signin.SignIn
	// DemoQueue is the queue of this process's demo runner. Empty: there is no demo runner.
	DemoQueue string

	// Log gets one event for each request.
	Log logrus.FieldLogger
}
