package local_test

import (
	"bytes"
	"context"
	"os/signal"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Ignore SIGXFSZ, so that a write beyond the file size limit returns an error, as on a full disk.
// By default, the signal would kill the process whose file size TestAFullDiskIsRecoveredFrom
// limits.
func init() { signal.Ignore(unix.SIGXFSZ) } //nolint:gochecknoinits // before main, in every program

// While the disk is full, senders get an error and /readyz gives the reason. Once there is room
// again, the program recovers without intervention. The test simulates the full disk by a limit on
// the file size, which needs no root privileges.
func TestAFullDiskIsRecoveredFrom(t *testing.T) {
	t.Parallel()
	l := launchReady(t, t.TempDir())
	limit := func(bytes uint64) {
		t.Helper()
		if err := unix.Prlimit(l.PID(), unix.RLIMIT_FSIZE, &unix.Rlimit{
			Cur: bytes,
			Max: unix.RLIM_INFINITY,
		}, nil); err != nil {
			t.Fatal(err)
		}
	}
	body := append(append([]byte(`"`), bytes.Repeat([]byte("x"), 90_000)...), '"')
	deliver := func() int {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		a, err := l.post(ctx, "", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		return a.status
	}
	if status := deliver(); status != 200 {
		t.Fatalf("at the beginning: %d", status)
	}
	limit(250_000)
	for tries := 0; deliver() != 503; tries++ {
		if tries == 20 {
			t.Fatal("the limit is not noticed")
		}
	}
	l.awaitReadyz(t, "NATS storage: ")
	limit(unix.RLIM_INFINITY)
	l.awaitReadyz(t, "ready")
	if status := deliver(); status != 200 {
		t.Errorf("after there is room again: %d", status)
	}
	l.Await(`(it is restarted)`)
	l.Terminate()
}
