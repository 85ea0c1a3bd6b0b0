package edit_test

import (
	"os"
	"testing"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
)

// TestMain runs the tests, or a NATS server if a test has started this binary as one.
func TestMain(m *testing.M) { os.Exit(natstest.Main(m)) }
