package console

import (
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/executor/internal/operate"
	"github.com/hookstart/hookstart/executor/internal/signin"
)

// Config holds the parts that the console uses but does not own. A field without a documented
// default is required.
type Config struct {
	// Operate provides the data of the pages.
	Operate *operate.Service

	// SignIn authenticates operators. The browser also calls the API below /api/, which must use
	// the same SignIn.
	SignIn *signin.SignIn
	// DemoQueue is the queue of this process's demo runner. "" means that there is no demo runner.
	DemoQueue string

	// Log receives one event for each request.
	Log logrus.FieldLogger
}
