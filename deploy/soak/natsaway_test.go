package soak

import (
	"testing"
	"time"

	"github.com/hookstart/hookstart/shared/retry"
)

// answerBound is the maximum time a sender waits for a response: the publish timeout of 5 s, plus
// the time that a busy machine may take.
const answerBound = 9 * time.Second

// While NATS is unavailable under load, every request gets a 503 within answerBound. When NATS is
// back, senders get 200 again without intervention. A request that was sent after the outage began
// and was refused is not stored.
func TestNATSAway(t *testing.T) {
	t.Parallel()
	i := set(t, installConfig{nodes: 1, ingresses: 2, executors: 1, databaseURL: sqlite(t)})
	p := post(t, i, 0)
	p.awaitAccepted(t, 200)

	i.nodes[0].kill()
	gone := time.Now()
	retry.Sleep(t.Context(), *away)
	back := time.Now()
	if err := i.nodes[0].start(); err != nil {
		t.Fatal(err)
	}
	p.awaitAccepted(t, 500)
	all := p.end()

	stored := checkStored(t, i, all, 30*time.Second)
	refused, inFlight := 0, 0
	for _, one := range all {
		if one.err != nil || one.took > answerBound ||
			one.answer.Status != 200 && one.answer.Status != 503 {
			t.Errorf("%s", one)
		}
		meanwhile := one.began.After(gone) && one.began.Add(one.took).Before(back)
		if meanwhile {
			refused++
			if one.answer.Status != 503 {
				t.Errorf("NATS was away, and %s", one)
			}
		}
		if one.answer.Status == 200 || !stored[one.marker] {
			continue
		}
		// A request that was in flight when the server was killed may be stored although it was
		// refused. A request that began later must not be stored.
		if one.began.After(gone) {
			t.Errorf("a ghost: %s", one)
		}
		inFlight++
	}
	if refused < 10 {
		t.Errorf("%d answers while NATS was away: too few to show anything", refused)
	}
	t.Logf("%d refused while NATS was away; %d stored without an answer when it was killed",
		refused, inFlight)
}
