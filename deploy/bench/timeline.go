package bench

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/exp/trace"
)

// goroutineState is the state of a goroutine as the scheduler sees it.
type goroutineState int

const (
	stateWaiting  goroutineState = iota
	stateRunnable                // ready to run, but without a P
	stateRunning
	stateSyscall // in a system call
)

// span is an interval in which a goroutine has one state. The times are in nanoseconds of the
// system's monotonic clock.
type span struct {
	from, to int64
	state    goroutineState
	reason   string // why the goroutine waits, in the words of the trace, such as "select"
}

// goroutine is one goroutine in a trace, with its states over time.
type goroutine struct {
	name      string // name of its main function; see goroutineName
	spans     []span
	gcAssists []span // times at which it had to help the garbage collector
}

// spansWithin returns the goroutine's spans that overlap the interval between from and to.
func (g *goroutine) spansWithin(from, to int64) []span {
	first, _ := slices.BinarySearchFunc(g.spans, from, func(s span, at int64) int {
		if s.to <= at {
			return -1
		}
		return 1
	})
	last := first
	for last < len(g.spans) && g.spans[last].from < to {
		last++
	}
	return g.spans[first:last]
}

// overlap returns how many nanoseconds of an interval the spans cover.
func overlap(spans []span, from, to int64) (sum int64) {
	for _, s := range spans {
		sum += max(0, min(s.to, to)-max(s.from, from))
	}
	return sum
}

// timeline is the execution trace of one process. Its times are in nanoseconds of the system's
// monotonic clock.
type timeline struct {
	name            string
	from, to        int64
	goroutines      map[trace.GoID]*goroutine
	worldStops      []span // times at which the world was stopped
	gcMarks         []span // times at which the garbage collector marked objects
	procs           int    // GOMAXPROCS
	schedulingDelay time.Duration
}

// readTimeline reads an execution trace of one process and converts its times to the monotonic
// clock.
func readTimeline(in io.Reader) (*timeline, error) {
	r, err := trace.NewReader(in)
	if err != nil {
		return nil, err
	}
	t := &timeline{goroutines: map[trace.GoID]*goroutine{}}
	open := map[traceRangeID]int64{} // start times of the ranges that have not ended
	var shift int64                  // what to add to a time of the trace to get a monotonic time
	synced := false                  // whether shift is known
	var events []trace.Event
	for {
		e, err := r.ReadEvent()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if e.Kind() == trace.EventSync {
			if s := e.Sync().ClockSnapshot; s != nil && !synced {
				//nolint:gosec // it fits for 292 years
				shift = int64(s.Mono) - int64(s.Trace)
				synced = true
			}
			continue
		}
		events = append(events, e)
	}
	if !synced || len(events) == 0 {
		return nil, errors.New("it has no clock snapshot")
	}
	t.from, t.to = int64(events[0].Time())+shift, int64(events[len(events)-1].Time())+shift
	for _, e := range events {
		at := int64(e.Time()) + shift
		switch e.Kind() { //nolint:exhaustive // the others say nothing of waiting
		case trace.EventStateTransition:
			t.addStateTransition(e, at)
		case trace.EventRangeBegin, trace.EventRangeActive:
			open[rangeOf(e)] = at
		case trace.EventRangeEnd:
			t.addRange(e, open[rangeOf(e)], at)
			delete(open, rangeOf(e))
		case trace.EventMetric:
			if m := e.Metric(); m.Name == "/sched/gomaxprocs:threads" {
				t.procs = int(m.Value.Uint64()) //nolint:gosec // few
			}
		}
	}
	for _, g := range t.goroutines {
		if n := len(g.spans); n > 0 && g.spans[n-1].to == 0 {
			g.spans[n-1].to = t.to
		}
	}
	t.procs = max(1, t.procs)
	return t, nil
}

// traceRangeID identifies a range of the execution trace that has begun and not ended.
type traceRangeID struct {
	name  string
	scope trace.ResourceID
}

func rangeOf(e trace.Event) traceRangeID { return traceRangeID{e.Range().Name, e.Range().Scope} }

func (t *timeline) addRange(e trace.Event, from, to int64) {
	s := span{from: from, to: to}
	switch r := e.Range(); {
	case strings.HasPrefix(r.Name, "stop-the-world"):
		t.worldStops = append(t.worldStops, s)
	case r.Name == "GC concurrent mark phase":
		t.gcMarks = append(t.gcMarks, s)
	case r.Name == "GC mark assist" && r.Scope.Kind == trace.ResourceGoroutine:
		if g := t.goroutines[r.Scope.Goroutine()]; g != nil {
			g.gcAssists = append(g.gcAssists, s)
		}
	}
}

func (t *timeline) addStateTransition(e trace.Event, at int64) {
	change := e.StateTransition()
	if change.Resource.Kind != trace.ResourceGoroutine {
		return
	}
	id := change.Resource.Goroutine()
	g := t.goroutines[id]
	if g == nil {
		g = &goroutine{}
		t.goroutines[id] = g
	}
	if g.name == "" || isWrapper(g.name) {
		if name := goroutineName(change.Stack); name != "" {
			g.name = name
		} else if e.Goroutine() == id {
			g.name = goroutineName(e.Stack())
		}
	}
	if n := len(g.spans); n > 0 && g.spans[n-1].to == 0 {
		g.spans[n-1].to = at
	}
	_, next := change.Goroutine()
	s := span{from: at, reason: change.Reason}
	switch next {
	case trace.GoRunnable:
		s.state = stateRunnable
	case trace.GoRunning:
		s.state = stateRunning
	case trace.GoSyscall:
		s.state = stateSyscall
	case trace.GoWaiting:
		s.state = stateWaiting
	case trace.GoNotExist, trace.GoUndetermined:
		return
	}
	g.spans = append(g.spans, s)
}

// goroutineName returns the name for the goroutine with the given stack: the innermost function
// that is a key of messageGoroutineLabels or, if there is none, the outermost function that is not
// a wrapper.
func goroutineName(stack trace.Stack) (name string) {
	for frame := range stack.Frames() {
		short := frame.Func[strings.LastIndexByte(frame.Func, '/')+1:]
		if messageGoroutineLabels[short] != "" {
			return short
		}
		if name == "" || !isWrapper(short) {
			name = short
		}
	}
	return name
}

// isWrapper reports whether a function only calls the actual function of a goroutine.
func isWrapper(function string) bool {
	return strings.HasPrefix(function, "sync.") || function == "runtime.goexit" ||
		strings.HasPrefix(function, "server.(*Server).startGoRoutine")
}

// httpGoroutines returns the goroutines that serve HTTP connections.
func (t *timeline) httpGoroutines() (all []*goroutine) {
	for _, g := range t.goroutines {
		if g.name == "http.(*conn).serve" {
			all = append(all, g)
		}
	}
	return all
}

// matchConnections returns the goroutine that serves each connection, keyed by connection. It
// recognizes this goroutine by the times at which it runs: during almost every request of the
// connection, and hardly ever otherwise. Any other goroutine runs during only a few of the
// requests, by chance. All requests must lie within the trace. matchConnections returns an error if
// a connection has no such goroutine.
func matchConnections(
	requests []observedRequest, serving []*goroutine,
) (map[int]*goroutine, error) {
	byConnection := map[int][]observedRequest{}
	for _, o := range requests {
		byConnection[o.connection] = append(byConnection[o.connection], o)
	}
	type match struct {
		connection int
		goroutine  *goroutine
		score      float64
	}
	var matches []match
	for connection, own := range byConnection {
		for _, g := range serving {
			share, score := g.servedShare(own)
			if share >= minServedShare {
				matches = append(matches, match{connection, g, score})
			}
		}
	}
	slices.SortFunc(matches, func(a, b match) int { return cmp.Compare(b.score, a.score) })
	found, taken := map[int]*goroutine{}, map[*goroutine]bool{}
	for _, m := range matches {
		if found[m.connection] == nil && !taken[m.goroutine] {
			found[m.connection], taken[m.goroutine] = m.goroutine, true
		}
	}
	for connection, own := range byConnection {
		if found[connection] == nil {
			return nil, fmt.Errorf("none of %d goroutines served the %d requests of connection %d",
				len(serving), len(own), connection)
		}
	}
	return found, nil
}

// minServedShare is the share of a connection's requests during which a goroutine must have run to
// count as the goroutine that serves the connection. It is below 1 because the times of a request
// come from another process, the generator, and are therefore not exact.
const minServedShare = 0.9

// servedShare returns the share of the requests during which the goroutine ran. It also returns a
// score from 0 to 1: that share, multiplied by the part of the goroutine's non-waiting time that
// lies within the requests. The requests must be in chronological order.
func (g *goroutine) servedShare(requests []observedRequest) (share, score float64) {
	var inside, outside float64
	n, served, lastServed := 0, 0, -1
	for _, s := range g.spans {
		if s.state == stateWaiting {
			continue
		}
		for n < len(requests)-1 && requests[n].answered < s.from {
			n++
		}
		in := max(0, min(s.to, requests[n].answered)-max(s.from, requests[n].sent))
		if in > 0 && lastServed != n {
			served, lastServed = served+1, n
		}
		inside, outside = inside+float64(in), outside+float64(s.to-s.from-in)
	}
	share = float64(served) / float64(len(requests))
	return share, share * inside / (inside + outside + 1)
}

// messageGoroutineLabels describes the goroutines that handle a message or its acknowledgement, in
// the NATS client and in the NATS server. It is keyed by the main function of the goroutine.
var messageGoroutineLabels = map[string]string{
	"nats%2ego.(*Conn).flusher":     "client's writer",
	"nats%2ego.(*Conn).readLoop":    "client's reader",
	"nats%2ego.(*Conn).waitForMsgs": "client's receiver of acknowledgements",
	"server.(*client).readLoop":     "server's reader",
	"server.(*client).writeLoop":    "server's writer",
	"server.(*stream).internalLoop": "server's stream loop",
}

// addMessageActivityTimes divides the time between from and end among the activities that may delay
// messages in the process. The time of each activity is added to the map to, under the names of the
// process and the activity. If several activities overlap, the time counts only for the first of
// them in this list:
//
//  1. The Go runtime has stopped all goroutines ("the world is stopped").
//  2. A goroutine that handles messages (see messageGoroutineLabels) waits to run.
//  3. Such a goroutine is in a system call.
//  4. Such a goroutine runs.
//  5. None of these.
func (t *timeline) addMessageActivityTimes(to activityTimes, from, end int64) {
	type doing struct {
		what string
		span span
	}
	var all []doing
	cuts := []int64{from, end}
	for _, s := range t.worldStops {
		if s.from < end && s.to > from {
			all = append(all, doing{"the world is stopped", s})
		}
	}
	for _, wanted := range []struct {
		state goroutineState
		does  string
	}{{stateRunnable, " waits to run"}, {stateSyscall, " is in a system call"}, {
		stateRunning,
		" runs",
	}} {
		for _, g := range t.messageGoroutines() {
			for _, s := range g.spansWithin(from, end) {
				if s.state == wanted.state {
					all = append(all, doing{messageGoroutineLabels[g.name] + wanted.does, s})
				}
			}
		}
	}
	for _, d := range all {
		cuts = append(cuts, max(from, d.span.from), min(end, d.span.to))
	}
	slices.Sort(cuts)
	for n := range cuts[1:] {
		a, b := cuts[n], cuts[n+1]
		what := "nothing of it is ready"
		for _, d := range all {
			if d.span.from <= a && d.span.to >= b {
				what = d.what
				break
			}
		}
		to[t.name+": "+what] += time.Duration(b - a)
	}
}

// messageGoroutines returns the goroutines that are in messageGoroutineLabels: they handle messages
// and acknowledgements.
func (t *timeline) messageGoroutines() (all []*goroutine) {
	for _, g := range t.goroutines {
		if messageGoroutineLabels[g.name] != "" {
			all = append(all, g)
		}
	}
	return all
}

// idleActivity is the activity of a P (a processor of the Go scheduler) while it runs no goroutine.
const idleActivity = "no goroutine: a thread wakes up, or ends a system call"

// addGoroutineTimes divides the time between from and end among the goroutines that the process
// ran. The results are added to the map to: the time of each goroutine under the goroutine's name,
// and the remaining time under idleActivity. All times are divided by the number of Ps, so that
// their sum is the length of the interval. Goroutines in system calls do not count as running,
// because they give up their P if the call takes long.
func (t *timeline) addGoroutineTimes(to activityTimes, from, end int64) {
	free := time.Duration(end-from) * time.Duration(t.procs)
	for _, g := range t.goroutines {
		for _, s := range g.spansWithin(from, end) {
			if s.state == stateRunning {
				took := time.Duration(min(s.to, end) - max(s.from, from))
				free -= took
				to[g.name] += took / time.Duration(t.procs)
			}
		}
	}
	to[idleActivity] += max(0, free) / time.Duration(t.procs)
}

// writeRow writes the row of this process in the table "Processes", such as how long its goroutines
// waited to run.
func (t *timeline) writeRow(w io.Writer) {
	var waited []time.Duration
	for _, g := range t.goroutines {
		for _, s := range g.spans {
			if s.state == stateRunnable {
				waited = append(waited, time.Duration(s.to-s.from))
			}
		}
	}
	slices.Sort(waited)
	longest := int64(0)
	for _, s := range t.worldStops {
		longest = max(longest, s.to-s.from)
	}
	whole := time.Duration(t.to - t.from)
	_, _ = fmt.Fprintf(w, "%s\t%.3f, %.2f\t%d\t%.0f %%\t%d, %.2f\t%.0f %%\n", t.name,
		durationQuantileMS(waited, 0.5), durationQuantileMS(waited, 0.99), len(t.gcMarks),
		percentOf(time.Duration(overlap(t.gcMarks, t.from, t.to)), whole), len(t.worldStops),
		milliseconds(time.Duration(longest)), percentOf(t.schedulingDelay, whole))
}
