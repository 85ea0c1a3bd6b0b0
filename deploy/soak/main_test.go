package soak

import (
	"flag"
	"os"
	"testing"
	"time"
)

// away is the time for which NATS and the database are unavailable. make soak AWAY=60s makes it
// longer.
var away = flag.Duration("away", 3*time.Second,
	"how long NATS and the database are away in the tests of that")

// TestMain provides the programs: the test binary, started under the name of a program, acts as
// that program. So the tests run real processes, with the race detector in them.
func TestMain(m *testing.M) {
	if RunAsRole() {
		return
	}
	os.Exit(m.Run())
}
