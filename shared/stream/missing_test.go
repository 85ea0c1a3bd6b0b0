package stream_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hookstart/hookstart/shared/stream"
)

func TestAMissingStreamIsNotCreatedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		missing := stream.MissingStreams{}
		for i, check := range []struct {
			exists, creatable bool
		}{
			{false, false}, // at 0 s
			{false, false}, // at 0.6 s
			{false, true},
			{true, false},
			{false, false},
		} {
			if got := missing.RecordCheck("a", check.exists); got != check.creatable {
				t.Errorf("check %d: %t", i, got)
			}
			if missing.RecordCheck("b", i != 2) {
				t.Error("another stream is created at once")
			}
			<-time.After(600 * time.Millisecond)
		}
	})
}
