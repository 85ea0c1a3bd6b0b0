package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// TailLatency shows in which stages the slowest requests spend their time, at a constant rate of
// requests. It records Go execution traces of all processes of a variant, and combines them with
// the times of the requests in the generator. The struct tags define the program's flags.
type TailLatency struct {
	Variants []string      `help:"Which variants are traced, one after the other." default:"bare,hookstart,hookstart-recording,hookstart-local"`
	Rate     float64       `help:"Requests per second." default:"5000"`
	Duration time.Duration `help:"How long the traces are." default:"4s"`
	Slowest  float64       `help:"Percent of the requests that count as slow." default:"1"`
	LoadOptions
}

// maxTraceDuration is the maximum duration of a trace, because traces are read into memory.
const maxTraceDuration = 30 * time.Second

func (c *TailLatency) validate() error {
	problems := []error{
		c.LoadOptions.validate(),
		checkRange("rate", c.Rate, 1, maxRate),
		checkRange("duration", c.Duration.Seconds(), 0.1, maxTraceDuration.Seconds()),
		checkRange("slowest", c.Slowest, 0.01, 50),
	}
	for _, name := range c.Variants {
		if variants[name].install == nil {
			problems = append(problems, fmt.Errorf("--variants: %q is none of %s", name,
				strings.Join(variantNames, ", ")))
		}
	}
	return errors.Join(problems...)
}

// Run records traces and writes the tables of each variant to c.Out.
func (c *TailLatency) Run(ctx context.Context) error {
	if err := c.validate(); err != nil {
		return err
	}
	for _, name := range c.Variants {
		if err := c.measure(ctx, name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// observedRequest is one request as seen by the generator. The times are in nanoseconds of the
// system's monotonic clock.
type observedRequest struct {
	connection          int // the connection's file descriptor
	due, sent, answered int64
}

func (o observedRequest) latency() time.Duration { return time.Duration(o.answered - o.due) }

func (c *TailLatency) measure(ctx context.Context, name string) (err error) {
	at, err := newWorkspace(c.Out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, at.close()) }()
	s, err := at.startSystem(ctx, variants[name].install, &launcher{
		binFolder: c.Bin, folder: at.folder, name: name, workflows: 1, traced: true,
	})
	if err != nil {
		return err
	}
	var sent uint64
	g, err := newGenerator(s.requestTarget, c.Connections, c.BodyBytes, 1, 0, &sent)
	if err != nil {
		return err
	}
	defer g.close()
	at.progress.Show("%s: warming up", name)
	if _, err := g.run(2*warmUpTime, c.Rate); err != nil {
		return err
	}
	at.progress.Show("%s: sending for %s", name, c.Duration)
	var requests []observedRequest
	wall, mono := readBothClocks()
	g.onConnAnswer = func(done *httpConn, at time.Time) {
		requests = append(requests, observedRequest{
			done.fd, mono + done.dueAt.Sub(wall).Nanoseconds(),
			mono + done.sentAt.Sub(wall).Nanoseconds(), mono + at.Sub(wall).Nanoseconds(),
		})
	}
	delayed, err := s.schedulingDelays()
	if err != nil {
		return err
	}
	recording := s.startTraces(ctx, c.Duration)
	if _, err := g.run(c.Duration, c.Rate); err != nil {
		return err
	}
	delayedAfter, err := s.schedulingDelays()
	if err != nil {
		return err
	}
	traces, err := recording()
	if err != nil {
		return err
	}
	at.progress.Show("%s: reading the traces", name)
	var timelines []*timeline
	for i, p := range s.processes {
		t, err := readTimeline(bytes.NewReader(traces[i]))
		if err != nil {
			return fmt.Errorf("the trace of %s: %w", p.name, err)
		}
		t.name = strings.TrimPrefix(p.name, name+"-")
		t.schedulingDelay = delayedAfter[i] - delayed[i]
		timelines = append(timelines, t)
	}
	at.progress.Done()
	return writeTail(c.Out, name, c.Rate, c.Slowest, requests, timelines)
}

// readBothClocks returns the current time twice: as Go's time, and on the clock of the traces. It
// repeats the readings until they are at most 10 µs apart, because the process may lose the CPU
// between them.
func readBothClocks() (wall time.Time, monotonic int64) {
	for {
		before := monotonicNanos()
		wall, monotonic = time.Now(), monotonicNanos()
		if monotonic-before <= 10_000 {
			return wall, monotonic
		}
	}
}

// schedulingDelays returns the scheduling delay of each process, in the order of s.processes: the
// total time for which its threads were ready to run but had no CPU.
func (s *system) schedulingDelays() ([]time.Duration, error) {
	delays := make([]time.Duration, len(s.processes))
	for i, p := range s.processes {
		delay, err := schedulingDelay(p.PID())
		if err != nil {
			return nil, err
		}
		delays[i] = delay
	}
	return delays, nil
}

// startTraces starts an execution trace of each process, which lasts for the given duration. The
// returned function waits until the traces are complete, and returns them in the order of
// s.processes.
func (s *system) startTraces(ctx context.Context, duration time.Duration) func() ([][]byte, error) {
	type end struct {
		index int
		trace []byte
		err   error
	}
	ends := make(chan end, len(s.processes))
	for i, p := range s.processes {
		go func() {
			trace, err := p.fetchTrace(ctx, duration)
			ends <- end{i, trace, err}
		}()
	}
	return func() ([][]byte, error) {
		traces := make([][]byte, len(s.processes))
		var problems error
		for range s.processes {
			e := <-ends
			traces[e.index] = e.trace
			problems = errors.Join(problems, e.err)
		}
		return traces, problems
	}
}

func (p *process) fetchTrace(ctx context.Context, duration time.Duration) ([]byte, error) {
	url := fmt.Sprintf("http://%s/debug/pprof/trace?seconds=%g", p.opsAddr, duration.Seconds())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, answer.Status)
	}
	return io.ReadAll(answer.Body)
}

// activityTimes holds total durations, keyed by what took the time: a stage of a request, what a
// process did with messages, or the name of a goroutine.
type activityTimes map[string]time.Duration

// The stages of a request, in order.
const (
	stageUnsent           = "due, not sent: no connection is free, or the generator is late"
	stageUnread           = "sent, not noticed by the process"
	stageRunnable         = "noticed, waits to run"
	stageRunning          = "runs: reads, checks, encodes, logs, answers"
	stageGCAssist         = "runs, to help the garbage collector"
	stageSyscall          = "system calls"
	stageLockWait         = "waits for a lock or a queue"
	stageAckWait          = "waits for the acknowledgement"
	stageRunnableAfterAck = "acknowledged, waits to run"
	stageAnswerUnread     = "answered, not noticed by the generator"
)

var stages = []string{
	stageUnsent, stageUnread, stageRunnable, stageRunning, stageGCAssist,
	stageSyscall, stageLockWait,
	stageAckWait, stageRunnableAfterAck, stageAnswerUnread,
}

// stageBreakdown holds how much time a group of requests spent in each stage.
type stageBreakdown struct {
	count             int
	total             time.Duration
	stageTimes        activityTimes
	ackWaitActivities activityTimes // what the processes did during stageAckWait
	// runnableActivities holds how long the process ran each goroutine while the goroutine of a
	// request was ready but had to wait to run.
	runnableActivities activityTimes
}

func (b *stageBreakdown) add(
	o observedRequest,
	serving *goroutine,
	front *timeline,
	all []*timeline,
) {
	b.count++
	b.total += o.latency()
	stage := func(name string, from, to int64) {
		b.stageTimes[name] += time.Duration(max(0, to-from))
	}
	stage(stageUnsent, o.due, o.sent)
	acked := false
	spans := serving.spansWithin(o.sent, o.answered)
	for n, s := range spans {
		from, to := max(s.from, o.sent), min(s.to, o.answered)
		switch {
		case s.state == stateWaiting && n == 0:
			stage(stageUnread, from, to)
		case s.state == stateWaiting && n == len(spans)-1:
			stage(stageAnswerUnread, from, to)
		case s.state == stateWaiting && (s.reason == "chan receive" || s.reason == "select"):
			stage(stageAckWait, from, to)
			acked = true
			for _, t := range all {
				t.addMessageActivityTimes(b.ackWaitActivities, from, to)
			}
		case s.state == stateWaiting:
			stage(stageLockWait, from, to)
		case s.state == stateRunnable:
			if acked {
				stage(stageRunnableAfterAck, from, to)
			} else {
				stage(stageRunnable, from, to)
			}
			front.addGoroutineTimes(b.runnableActivities, from, to)
		case s.state == stateSyscall:
			stage(stageSyscall, from, to)
		default:
			helping := overlap(serving.gcAssists, from, to)
			stage(stageGCAssist, 0, helping)
			stage(stageRunning, 0, to-from-helping)
		}
	}
}

func writeTail(
	out io.Writer, name string, rate, percent float64, requests []observedRequest, all []*timeline,
) error {
	front := all[0]
	for _, t := range all {
		if len(t.httpGoroutines()) > len(front.httpGoroutines()) {
			front = t
		}
	}
	// Drop the requests that began before, or ended after, the time in which all processes were
	// traced.
	from, to := front.from, front.to
	for _, t := range all {
		from, to = max(from, t.from), min(to, t.to)
	}
	requests = slices.DeleteFunc(requests, func(o observedRequest) bool {
		return o.due < from || o.answered > to
	})
	if len(requests) == 0 {
		return errors.New("the traces cover no request")
	}
	serving, err := matchConnections(requests, front.httpGoroutines())
	if err != nil {
		return fmt.Errorf("the trace of %s: %w", front.name, err)
	}
	slices.SortFunc(requests,
		func(a, b observedRequest) int { return int(b.latency() - a.latency()) })
	slow := max(1, int(float64(len(requests))*percent/100))
	groups := make([]stageBreakdown, 2)
	for n := range groups {
		groups[n] = stageBreakdown{
			stageTimes:         activityTimes{},
			ackWaitActivities:  activityTimes{},
			runnableActivities: activityTimes{},
		}
	}
	for n, o := range requests {
		group := &groups[1]
		if n < slow {
			group = &groups[0]
		} else if n%20 != 0 { // of the requests that are not slow, measure only one in 20
			continue
		}
		group.add(o, serving[o.connection], front, all)
	}
	slowest, others := groups[0], groups[1]
	_, _ = fmt.Fprintf(out, "\n%s, %.0f requests per second, traced: p50 %.2f ms, the slowest "+
		"%g %% took %.2f ms or more\n", name, rate,
		milliseconds(requests[len(requests)/2].latency()), percent,
		milliseconds(requests[slow-1].latency()))
	rows := func(title string, names []string, timesOf func(stageBreakdown) activityTimes) {
		writeTable(out, title,
			fmt.Sprintf("\tslowest %g %%: ms\tshare\tothers: ms\tshare", percent),
			func(w io.Writer) {
				for _, row := range names {
					s, o := timesOf(slowest)[row], timesOf(others)[row]
					_, _ = fmt.Fprintf(w, "%s\t%.2f\t%.0f %%\t%.3f\t%.0f %%\n", row,
						milliseconds(s)/float64(slowest.count), percentOf(s, slowest.total),
						milliseconds(o)/float64(max(1, others.count)),
						percentOf(o, others.total))
				}
			})
	}
	rows("Where a request is, mean:", stages,
		func(b stageBreakdown) activityTimes { return b.stageTimes })
	rows("While it waits for the acknowledgement:", slowest.ackWaitActivities.largest(12),
		func(b stageBreakdown) activityTimes { return b.ackWaitActivities })
	rows(
		"What the process runs while the request waits to run:",
		slowest.runnableActivities.largest(12),
		func(b stageBreakdown) activityTimes { return b.runnableActivities },
	)
	writeTable(out, "Processes:",
		"\tready goroutines wait, p50, p99 ms\tGC cycles\tmarking, of the time"+
			"\tworld stopped, times, longest ms\tthreads wait for a CPU, of one",
		func(w io.Writer) {
			for _, t := range all {
				t.writeRow(w)
			}
		})
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func percentOf(part, whole time.Duration) float64 {
	return 100 * float64(part) / float64(max(1, whole))
}

// largest returns the names of the activities that took the most time, longest first. It returns
// count names, or fewer if there are fewer activities.
func (s activityTimes) largest(count int) []string {
	names := slices.SortedFunc(maps.Keys(s), func(a, b string) int { return int(s[b] - s[a]) })
	return names[:min(count, len(names))]
}
