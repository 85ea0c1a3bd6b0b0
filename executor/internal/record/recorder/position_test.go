package recorder

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hookstart/hookstart/shared/ops"
)

// A new database may lack messages. The executor stays ready for a grace period, and is then not
// ready. It becomes ready again after maxUncertainty at the latest.
func TestReadinessWhileADatabaseMayLackMessages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, ready := &databaseRecovery{}, &ops.Readiness{}
		want := func(reason string) {
			t.Helper()
			r.updateReadiness(ready, uncertaintyGrace)
			got := strings.Join(ready.NotReadyReasons(), "; ")
			if (got == "") != (reason == "") || !strings.Contains(got, reason) {
				t.Errorf("%q, want %q", got, reason)
			}
		}
		const unknown, behind = "it is not known", "is recorded again"
		r.setDelivered("a", 7)
		r.addGoalsForDelivered(true)
		want("")
		<-time.After(uncertaintyGrace)
		want(unknown)
		<-time.After(maxUncertainty)
		want("")
		r.start("b", 3, ready)
		want(behind)
		r.markGoalReached("b")
		want(behind)
		r.markGoalReached("a")
		if want(behind); !r.endIfComplete(ready) {
			t.Error("the recovery does not end")
		}
		want("")

		r.addGoalsForDelivered(true)
		want("")
		<-time.After(uncertaintyGrace)
		want(unknown)
		r.forgetStream("a") // the stream was deleted
		want("")

		r.setDelivered("a", 9)
		r.addGoalsForDelivered(false)
		<-time.After(uncertaintyGrace)
		want("")
		if !r.mayLackMessages(streamPair{starts: "a"}) {
			t.Error("the database is not compared again")
		}
	})
}
