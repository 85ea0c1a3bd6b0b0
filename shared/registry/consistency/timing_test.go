package consistency

import (
	"testing"
	"time"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
)

// The guarantees in doc.go hold only if the durations satisfy these inequalities.
func TestTimings(t *testing.T) {
	t.Parallel()
	const lostInARow = 3
	if leaseDuration+(lostInARow+1)*heartbeatInterval > livenessTimeout {
		t.Errorf("a process relies on its lease for %s and is taken for dead after %s: with %d "+
			"heartbeats of %s lost it answers from an old registry",
			leaseDuration, livenessTimeout, lostInARow, heartbeatInterval)
	}
	if maxPeerSilence+leaseDuration > electionTimeout {
		t.Errorf("a lease of %s that counts from an answer of a leader that was heard %s ago "+
			"outlives the leader, who may be replaced after %s",
			leaseDuration, maxPeerSilence, electionTimeout)
	}
	if joinListenTime <= heartbeatInterval {
		t.Errorf("a new membership listens for %s, and heartbeats come every %s", joinListenTime,
			heartbeatInterval)
	}
	// The guarantees in doc.go do not depend on the following inequalities. They keep leases from
	// expiring in normal operation.
	if leaseRenewInterval+leaseRenewTimeout >= leaseDuration {
		t.Errorf("a renewal begins every %s and takes up to %s, but a lease is only %s long",
			leaseRenewInterval, leaseRenewTimeout, leaseDuration)
	}
	if deliveryStallTimeout >= leaseRenewTimeout {
		t.Errorf("a lost change is asked for after %s, but a renewal that waits for it takes at "+
			"most %s", deliveryStallTimeout, leaseRenewTimeout)
	}
}

// A change waits for a killed process only until the process is presumed dead. That is enough with
// a single server, where a process whose heartbeats do not arrive cannot renew its lease either. In
// a cluster, it can: see TestAChangeWaitsForTheLeaseOfASilentProcess.
func TestAKilledProcessIsNotWaitedForForEver(t *testing.T) {
	t.Parallel()
	now := time.Now()
	r := &Membership{nc: natstest.Start(t).Connect(t), members: map[string]member{}}
	for heard, want := range map[time.Duration]int{
		livenessTimeout - time.Millisecond: 1,
		livenessTimeout:                    0,
	} {
		r.members["killed"] = member{
			heartbeatMessage{role: RoleExecutor, serving: true, revision: 1}, now.Add(-heard),
		}
		if list, _ := r.laggingProcesses(2, now, now); len(list) != want {
			t.Errorf("heard %s ago: %q", heard, list)
		}
	}
}
