package soak

import (
	"flag"
	"os"
	"testing"
	"time"
)

// away is how long NATS or the database is unavailable in TestNATSAway and TestDatabaseAway. To run
// these tests with a longer outage, use for example "make soak AWAY=60s".
var away = flag.Duration("away", 3*time.Second,
	"how long NATS and the database are away in the tests of that")

// TestMain makes the test binary act as one of the programs of an installation when it is started
// under that program's name. The tests therefore run real processes. If the tests are built with
// the race detector, these processes use it as well.
func TestMain(m *testing.M) {
	if RunAsRole() {
		return
	}
	os.Exit(m.Run())
}
