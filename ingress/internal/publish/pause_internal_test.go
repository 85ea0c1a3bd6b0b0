package publish

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Messages for a full stream are sent together, at multiples of fullStreamInterval. A message is
// not delayed if the stream has refused nothing within the last second, or if it refused the last
// message for another reason.
func TestMessagesForAFullStreamWaitForEachOther(t *testing.T) {
	t.Parallel()
	full := fmt.Errorf("%w: maximum bytes exceeded", ErrStorageFull)
	for name, c := range map[string]struct {
		failure error
		age     time.Duration // how long ago the failure was
		pause   bool
	}{
		"nothing was refused":        {nil, 0, false},
		"full":                       {full, 0, true},
		"full, half a second ago":    {full, time.Second / 2, true},
		"full, longer ago":           {full, time.Second + time.Millisecond, false},
		"refused for another reason": {errors.New("no leader"), 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := &StreamPublisher{}
				if c.failure != nil {
					p.lastFailure.Store(&storeFailure{time.Now(), c.failure, 0})
				}
				<-time.After(c.age)
				began := time.Now()
				next := began.Truncate(fullStreamInterval).Add(fullStreamInterval)
				var wg sync.WaitGroup
				for n := range 4 {
					after := time.Duration(n) * fullStreamInterval / 8
					wg.Go(func() {
						<-time.After(after)
						p.pauseIfFull()
						want := began.Add(after)
						if c.pause {
							want = next
						}
						if now := time.Now(); !now.Equal(want) {
							t.Errorf("the message after %s was sent at %s, not %s", after,
								now.Sub(began), want.Sub(began))
						}
					})
				}
				wg.Wait()
			})
		})
	}
}
