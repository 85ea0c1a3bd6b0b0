package edit_test

import (
	"os"
	"testing"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
)

// TestMain also lets the test binary run as a NATS server.
func TestMain(m *testing.M) { os.Exit(natstest.Main(m)) }
