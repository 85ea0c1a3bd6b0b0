package local

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hookstart/hookstart/shared/ops/logtest"
)

// While its disk stalls, the embedded server does not answer a health check. Neither /readyz nor
// the shutdown of the program waits for the answer, and no second health check begins before the
// first one has returned.
func TestAStalledDiskIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	asked, goOn := make(chan struct{}, 10), make(chan struct{})
	checker := newHealthChecker(func() error {
		asked <- struct{}{}
		<-goOn
		return nil
	})
	ctx, stop := context.WithCancel(t.Context())
	recovering := make(chan error, 1)
	go func() { recovering <- superviseNATS(ctx, nil, checker, t.TempDir(), logtest.Discard()) }()
	<-asked
	for range 2 {
		err := checker.checkWithin(t.Context(), time.Millisecond)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it works: %v", err)
		}
	}
	stop()
	select {
	case err := <-recovering:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the stop waits for the disk")
	}
	if len(asked) > 0 {
		t.Errorf("the server was asked %d times more", len(asked))
	}
	close(goOn)
	if err := checker.checkWithin(t.Context(), 10*time.Second); err != nil {
		t.Errorf("when the disk goes on: %v", err)
	}
}
