package bench

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/exp/trace"
)

// Every nanosecond of a request is attributed to exactly one stage, and every nanosecond of its
// wait for the acknowledgement to one activity of each process.
func TestBreakdown(t *testing.T) {
	t.Parallel()
	serving := &goroutine{
		name: "http.(*conn).serve",
		spans: []span{
			{0, 100, stateWaiting, "network"},
			{100, 110, stateRunnable, ""},
			{110, 150, stateRunning, ""},
			{150, 300, stateWaiting, "chan receive"},
			{300, 320, stateRunnable, ""},
			{320, 330, stateRunning, ""},
			{330, 340, stateSyscall, ""},
			{340, 1000, stateWaiting, "network"},
		},
		gcAssists: []span{{from: 120, to: 130}},
	}
	writer := &goroutine{name: "nats%2ego.(*Conn).flusher", spans: []span{
		{0, 160, stateWaiting, "chan receive"},
		{160, 170, stateRunnable, ""},
		{170, 190, stateRunning, ""},
		{190, 1000, stateWaiting, "chan receive"},
	}}
	front := &timeline{
		name: "ingress", to: 1000, procs: 2,
		goroutines: map[trace.GoID]*goroutine{1: serving, 2: writer},
		worldStops: []span{{from: 180, to: 205}},
	}
	b := stageBreakdown{
		stageTimes:         activityTimes{},
		ackWaitActivities:  activityTimes{},
		runnableActivities: activityTimes{},
	}
	b.add(observedRequest{due: 50, sent: 60, answered: 350}, serving, front, []*timeline{front})
	for what, same := range map[string]struct{ got, want activityTimes }{
		"stages": {b.stageTimes, activityTimes{
			stageUnsent: 10, stageUnread: 40, stageRunnable: 10, stageRunning: 40,
			stageGCAssist: 10,
			stageAckWait:  150, stageRunnableAfterAck: 20, stageSyscall: 10, stageAnswerUnread: 10,
		}},
		"acknowledgement": {b.ackWaitActivities, activityTimes{
			"ingress: client's writer waits to run": 10, "ingress: client's writer runs": 10,
			"ingress: the world is stopped": 25, "ingress: nothing of it is ready": 105,
		}},
		"occupants": {b.runnableActivities, activityTimes{idleActivity: 30}},
	} {
		if !maps.Equal(same.got, same.want) {
			t.Errorf("%s: %v, want %v", what, same.got, same.want)
		}
	}
	if b.total != 300 {
		t.Errorf("the request took %d", b.total)
	}
}

// matchConnections chooses the goroutine that runs during every request of a connection (serving),
// although that goroutine also runs shortly after each answer. It does not choose the goroutine
// that runs only once, and by chance during a request (once). It returns an error if no goroutine
// serves a connection, or if one goroutine would have to serve two connections.
func TestMatchConnections(t *testing.T) {
	t.Parallel()
	serving, once := &goroutine{}, &goroutine{spans: []span{
		{50, 100, stateRunning, ""}, {100, 100_000, stateWaiting, "sync"},
	}}
	var requests []observedRequest
	for n := range int64(100) {
		sent := 1000 * n
		requests = append(requests, observedRequest{
			connection: 7, due: sent, sent: sent, answered: sent + 300,
		})
		serving.spans = append(serving.spans,
			span{sent, sent + 10, stateWaiting, "network"},
			span{sent + 10, sent + 360, stateRunning, ""},
			span{sent + 360, sent + 1000, stateWaiting, "network"})
	}
	found, err := matchConnections(requests, []*goroutine{once, serving})
	if err != nil || found[7] != serving {
		t.Errorf("%v, %v", found, err)
	}
	if found, err := matchConnections(requests, []*goroutine{once}); err == nil {
		t.Errorf("without the serving goroutine: %v", found)
	}
	both := slices.Clone(requests)
	for _, o := range requests {
		o.connection = 8
		both = append(both, o)
	}
	if found, err := matchConnections(both, []*goroutine{serving}); err == nil {
		t.Errorf("one goroutine, two connections: %v", found)
	}
}

// The tables for the real programs have the rows of the important goroutines. These goroutines are
// found by the names of functions in NATS and Go, which a new version may change.
func TestTail(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	tail := TailLatency{
		Variants: []string{"bare", "hookstart", "hookstart-local"}, Rate: 400,
		Duration: 2 * time.Second, Slowest: 50,
		LoadOptions: LoadOptions{Connections: 4, BodyBytes: 1024, Out: &out},
	}
	if err := tail.Run(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, row := range []string{
		stageAckWait, "\nbench-nats: server's stream loop", "\ningress: client's ",
		"\nhookstart-local: server's stream loop", "\nbench-bare ",
	} {
		if !strings.Contains(out.String(), row) {
			t.Errorf("no row %q:\n%s", row, &out)
		}
	}
}
