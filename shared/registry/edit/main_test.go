package edit_test

import (
	"os"
	"testing"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
)

// TestMain lets the test binary be a NATS server, too.
func TestMain(m *testing.M) { os.Exit(natstest.Main(m)) }
