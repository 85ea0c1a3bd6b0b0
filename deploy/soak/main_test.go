package soak

import (
	"flag"
	"os"
	"testing"
	"time"
)

// away is how long NATS and the database are unavailable in the tests. make soak AWAY=60s makes it
// longer.
var away = flag.Duration("away", 3*time.Second,
	"how long NATS and the database are away in the tests of that")

// TestMain makes the test binary act as one of the programs when it is started under that program's
// name. The tests therefore run real processes, which have the race detector if the tests have it.
func TestMain(m *testing.M) {
	if RunAsRole() {
		return
	}
	os.Exit(m.Run())
}
