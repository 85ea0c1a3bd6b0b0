package soak

import (
	"testing"
	"time"
)

// retryAfter is the value of the header Retry-After in a 503 that an ingress sends while the stream
// is unavailable.
const retryAfter = 2 * time.Second

// Under load, all processes are restarted one after another with SIGTERM. Nothing is lost, and each
// refused request gets a 200 when it is retried once after retryAfter.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	i := set(t, installConfig{nodes: 3, ingresses: 2, executors: 1, databaseURL: sqlite(t)})
	p := post(t, i, retryAfter)
	p.awaitAccepted(t, 200)

	for _, services := range [][]*service{i.ingresses, i.executors} {
		if err := rollingRestart(services)(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	}
	pace := time.After(0)
	for _, node := range i.nodes {
		<-pace // wait as an operator would, until the senders have retried
		pace = time.After(retryAfter + time.Second/2)
		node.terminate()
		if err := node.start(); err != nil {
			t.Fatal(err)
		}
		if err := i.awaitReplicas(t.Context(), recoverTimeout); err != nil {
			t.Fatal(err)
		}
	}
	p.awaitAccepted(t, 200)
	all := p.end()

	checkStored(t, i, all, 30*time.Second)
	refused := 0
	for _, one := range all {
		switch {
		case one.answer.Status == 200:
		case one.again:
			t.Errorf("refused twice: %s", one)
		default:
			refused++
		}
	}
	t.Logf("%d of %d were refused once", refused, len(all))
}
