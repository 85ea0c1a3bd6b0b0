package soak

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hookstart/hookstart/executor/pgtest"
	"github.com/hookstart/hookstart/shared/embednats/proxy"
	"github.com/hookstart/hookstart/shared/retry"
)

// Limits for the durations of faults and recoveries.
const (
	longestDowntime = 3 * time.Second
	shortestFault   = time.Second
	longestFault    = 10 * time.Second
	// recoverTimeout is the maximum time a service may take to become ready.
	recoverTimeout = time.Minute
	// replicaTimeout is the maximum time a node may take to catch up with all streams. It is long
	// because a leader makes no snapshot while a node catches up: if the node needs a snapshot, the
	// leader forces one only after more than a minute.
	replicaTimeout = 3 * time.Minute
)

// maxQueuedFaults limits the queue of waiting faults: no faults are added while the queue is at
// least this long.
const maxQueuedFaults = 200

// fault describes a fault that is to be injected into a target, such as a process.
type fault struct {
	kind     string
	targets  []string // names of the targets that must not have another fault meanwhile
	inject   injectFunc
	duration time.Duration
}

// injectFunc causes a fault, sleeps for the duration lasts, and removes the cause of the fault.
// Momentary faults, such as a restart, ignore the duration.
type injectFunc func(ctx context.Context, lasts time.Duration) error

// faultNodeDiskFull is the kind of the fault that fills the disk of a NATS node.
const faultNodeDiskFull = "full disk of node"

// incident is a fault that was injected. It ends when the cause of the fault is removed; the
// recovery of the installation after that is not part of it.
type incident struct {
	kind     string
	from, to time.Time
}

// faultInjector injects faults into an installation.
type faultInjector struct {
	installation *installation
	database     *pgtest.Server
	databaseDisk *disk // nil means that the database does not have a separate disk
	random       *rand.Rand
	meanInterval time.Duration // average time between two faults
	kindFilter   []string      // inject only faults whose kind contains one of these; nil means all
	logf         func(format string, args ...any)

	mu           sync.Mutex
	busyTargets  map[string]bool // names of the targets with a fault or in recovery
	targetsFreed chan struct{}   // closed and replaced whenever targets become free
	incidents    []incident
	problems     []string
	// unreportedAcks holds the times at which a simulated faulty runner acknowledged start messages
	// without sending a readable report, keyed by execution ID.
	unreportedAcks  map[string]time.Time
	recordingStalls []string // descriptions of the times at which recording stalled
}

func newFaultInjector(
	i *installation, database *pgtest.Server, databaseDisk *disk, seed uint64, every time.Duration,
	logf func(string, ...any),
) *faultInjector {
	return &faultInjector{
		installation:   i,
		database:       database,
		databaseDisk:   databaseDisk,
		random:         rand.New(rand.NewPCG(seed, 0)), //nolint:gosec // not a secret
		meanInterval:   every,
		logf:           logf,
		busyTargets:    map[string]bool{},
		unreportedAcks: map[string]time.Time{},
		targetsFreed:   make(chan struct{}),
	}
}

// shuffledFaults returns faults of every kind for every target, in random order, but leaves out
// some kinds for some targets at random. All NATS nodes share one target: at most one of the three
// has a fault, because the other two must work.
func (f *faultInjector) shuffledFaults() []fault {
	var all []fault
	add := func(kind string, targets []string, shortest, longest time.Duration, inject injectFunc) {
		if len(f.kindFilter) > 0 && !slices.ContainsFunc(f.kindFilter, func(part string) bool {
			return strings.Contains(kind, part)
		}) {
			return
		}
		lasts := shortest + time.Duration(f.random.Int64N(int64(longest-shortest)))
		all = append(all, fault{kind: kind, targets: targets, inject: inject, duration: lasts})
	}
	rolled := map[string][]string{}
	for _, s := range f.installation.listeningServices() {
		kind, _, _ := strings.Cut(s.name, "-")
		rolled[kind] = append(rolled[kind], s.name)
		add("kill "+kind, []string{s.name}, 0, longestDowntime, stopAndRestart(s.process, s.kill))
		add("pause "+kind, []string{s.name}, shortestFault, longestFault, pauseProcess(s.process))
	}
	add("rolling restart of ingresses", rolled["ingress"], 0, time.Second,
		rollingRestart(f.installation.ingresses))
	add("rolling restart of executors", rolled["executor"], 0, time.Second,
		rollingRestart(f.installation.executors))
	for _, r := range f.installation.runners {
		add("kill runner", []string{r.name}, 0, longestDowntime, stopAndRestart(r.process, r.kill))
		add("pause runner", []string{r.name}, shortestFault, longestFault, pauseProcess(r.process))
	}
	f.addConnectionFaults(add)
	f.addDatabaseFaults(add)
	f.addDataLossFaults(add)
	add(
		"reports about unknown executions",
		[]string{"noise"},
		0,
		time.Second,
		f.injectUnknownReports,
	)

	target := []string{"nodes"}
	nodes := f.installation.nodes
	for n, p := range nodes {
		add("kill node", target, 0, longestDowntime, stopAndRestart(p.process, p.kill))
		if p.disk != nil {
			freeBytes := f.random.Uint64N(64 << 10)
			add(faultNodeDiskFull, target, shortestFault, longestFault, func(
				ctx context.Context, lasts time.Duration,
			) error {
				return fillNodeDisk(ctx, p, freeBytes, lasts)
			})
		}
		links := f.installation.linksAround(n)
		if f.random.IntN(2) == 0 {
			links = f.installation.linksBetween(n, (n+1)%len(nodes))
		}
		add("cut between nodes", target, shortestFault, longestFault,
			breakLinks(links, (*proxy.Proxy).Cut))
		if n == f.random.IntN(len(nodes)) {
			continue // each of the following faults takes long, so leave them out for one node
		}
		add("pause node", target, shortestFault, longestFault, pauseProcess(p.process))
		add("silence between nodes", target, shortestFault, longestFault,
			breakLinks(links, (*proxy.Proxy).Silence))
	}
	for _, queue := range f.installation.queuesWithOwnStream() {
		add("step down leaders of an own stream", target, 0, time.Second, f.stepDownLeaders(queue))
	}
	last := nodes[f.random.IntN(len(nodes))]
	add("stop node", target, 0, longestDowntime, stopAndRestart(last.process, last.terminate))
	f.random.Shuffle(len(all), func(a, b int) { all[a], all[b] = all[b], all[a] })
	return all
}

// addFaultFunc adds a fault of the given kind to a set of faults. Its duration is chosen at random
// between shortest and longest. targets are the names of the targets that must not have another
// fault meanwhile.
type addFaultFunc func(kind string, targets []string, shortest, longest time.Duration,
	inject injectFunc)

// addConnectionFaults adds faults in the connections of the services and the runners to NATS and
// the database.
func (f *faultInjector) addConnectionFaults(add addFaultFunc) {
	for _, s := range slices.Concat(f.installation.listeningServices(), f.installation.runners) {
		kind, _, _ := strings.Cut(s.name, "-")
		target := []string{s.name}
		add("silence between "+kind+" and nodes", target, shortestFault, longestFreeze,
			breakLinks(s.natsLinks, (*proxy.Proxy).Silence))
		if s.databaseLink != nil {
			add("silence between executor and database", target, shortestFault, longestFreeze,
				breakLinks([]*proxy.Proxy{s.databaseLink}, (*proxy.Proxy).Silence))
		} else if f.random.IntN(2) == 0 {
			add("cut between "+kind+" and nodes", target, shortestFault, longestFault,
				breakLinks(s.natsLinks, (*proxy.Proxy).Cut))
		}
	}
}

// addDatabaseFaults adds the faults in which the database is killed or its disk is full, and those
// in which an executor is frozen, inside or outside of a transaction.
func (f *faultInjector) addDatabaseFaults(add addFaultFunc) {
	target := []string{"database"}
	add("kill database", target, 0, longestDowntime, f.killAndRestartDatabase)
	if f.databaseDisk != nil {
		// Add one fault that leaves no free space, and one that leaves less than 64 KiB, so that
		// some writes may still succeed.
		for _, freeBytes := range []uint64{0, f.random.Uint64N(64 << 10)} {
			add("full disk of database", target, shortestFault, longestFault, func(
				ctx context.Context, lasts time.Duration,
			) error {
				return f.fillDatabaseDisk(ctx, freeBytes, lasts)
			})
		}
	}
	impatient := f.random.IntN(len(lockModes))
	for n, mode := range lockModes {
		lockTimeout := n == impatient
		kind := "lock table " + mode
		if lockTimeout {
			kind += ", lock_timeout"
		}
		add(kind, target, shortestLock, longestLock,
			func(ctx context.Context, lasts time.Duration) error {
				return f.lockExecutionsTable(ctx, mode, lockTimeout, lasts)
			})
	}
	for _, e := range f.installation.executors {
		for _, in := range []bool{true, false} {
			kind := "freeze executor outside of a transaction"
			if in {
				kind = "freeze executor in a transaction"
			}
			add(kind, []string{e.name, "database"}, shortestFreeze, longestFreeze, func(
				ctx context.Context, lasts time.Duration,
			) error {
				return f.freezeExecutor(ctx, e, in, func() error {
					retry.Sleep(ctx, lasts)
					return nil
				})
			})
		}
	}
	everything := []string{"database", "nodes"}
	for _, p := range f.installation.processes() {
		everything = append(everything, p.name)
	}
	executor := f.installation.executors[f.random.IntN(len(f.installation.executors))]
	add("freeze executor in a transaction, nothing else", everything, minOnlyFaultFreeze,
		minOnlyFaultFreeze+time.Second, func(ctx context.Context, lasts time.Duration) error {
			return f.freezeAsOnlyFault(ctx, executor, lasts)
		})
}

// run injects faults until the context starting is done. It then waits until the current faults are
// over and their targets have recovered. The faults themselves use ctx, so the end of starting does
// not cut them short.
func (f *faultInjector) run(ctx, starting context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	var queue []fault
	for {
		retry.Sleep(starting,
			f.meanInterval/2+time.Duration(f.random.Int64N(int64(f.meanInterval))))
		if starting.Err() != nil {
			return
		}
		var next fault
		for found := false; !found; {
			f.mu.Lock()
			freed := f.targetsFreed
			next, queue, found = f.takeNextFault(queue)
			f.mu.Unlock()
			if found {
				break
			}
			// No queued fault can start. Add another set of faults to the queue: the queued ones
			// may all be waiting for the NATS nodes, while other kinds of faults could start now.
			if deck := f.shuffledFaults(); len(queue) < maxQueuedFaults && len(deck) > 0 {
				queue = append(queue, deck...)
				continue
			}
			select {
			case <-starting.Done():
				return
			case <-freed:
			}
		}
		all.Go(func() { f.inject(ctx, next) })
	}
}

// minTargetsToBlockQueue is the minimum number of targets with which a waiting fault blocks the
// queue: the faults behind it must wait until it has started. Otherwise, a fault that needs many
// targets could wait forever, because faults with fewer targets would always take some of them.
const minTargetsToBlockQueue = 4

// takeNextFault finds the first fault in the queue whose targets are all free, and occupies these
// targets. It does not look behind a waiting fault that blocks the queue (see
// minTargetsToBlockQueue). It returns the fault, the rest of the queue, and true. If no fault can
// start, it returns the unchanged queue and false. The caller holds mu.
func (f *faultInjector) takeNextFault(queue []fault) (fault, []fault, bool) {
	for n, next := range queue {
		free := true
		for _, target := range next.targets {
			free = free && !f.busyTargets[target]
		}
		if free {
			for _, target := range next.targets {
				f.busyTargets[target] = true
			}
			return next, append(queue[:n:n], queue[n+1:]...), true
		}
		if len(next.targets) >= minTargetsToBlockQueue {
			break
		}
	}
	return fault{}, queue, false
}

// inject injects a fault, records it as an incident, and frees its targets after the recovery.
func (f *faultInjector) inject(ctx context.Context, next fault) {
	from := time.Now()
	f.mu.Lock()
	index := len(f.incidents)
	f.incidents = append(f.incidents, incident{kind: next.kind, from: from})
	f.mu.Unlock()
	err := next.inject(ctx, next.duration)
	f.mu.Lock()
	f.incidents[index].to = time.Now()
	f.mu.Unlock()
	if err == nil && slices.Contains(next.targets, "nodes") {
		err = f.installation.awaitReplicas(ctx, replicaTimeout)
	}
	f.logf("%s %v for %s, recovered after %s", next.kind, next.targets,
		next.duration.Round(time.Millisecond), time.Since(from).Round(time.Millisecond))
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil && ctx.Err() == nil {
		f.problems = append(f.problems,
			next.kind+" ("+strings.Join(next.targets, ", ")+"): "+err.Error())
	}
	for _, target := range next.targets {
		delete(f.busyTargets, target)
	}
	close(f.targetsFreed)
	f.targetsFreed = make(chan struct{})
}

// addRecordingStall records that the executors recorded nothing although they should have. text
// describes the situation.
func (f *faultInjector) addRecordingStall(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.recordingStalls = append(f.recordingStalls, text)
}

// hasFaultAt reports whether the given target currently has a fault or is recovering from one.
func (f *faultInjector) hasFaultAt(target string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.busyTargets[target]
}

// pastIncidents returns a copy of the incidents so far.
func (f *faultInjector) pastIncidents() []incident {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]incident{}, f.incidents...)
}

// stopAndRestart returns an injection that stops a process by calling end, waits for the duration
// of the fault, and starts the process again.
func stopAndRestart(p *process, end func()) injectFunc {
	return func(ctx context.Context, lasts time.Duration) error {
		end()
		retry.Sleep(ctx, lasts)
		return p.start()
	}
}

// pauseProcess returns an injection that freezes a process: its connections stay open, but it does
// not respond.
func pauseProcess(p *process) injectFunc {
	return func(ctx context.Context, lasts time.Duration) error {
		if err := p.signal(syscall.SIGSTOP); err != nil {
			return err
		}
		retry.Sleep(ctx, lasts)
		return p.signal(syscall.SIGCONT)
	}
}

// breakLinks returns an injection that breaks each link by calling do with it, waits for the
// duration of the fault, and heals the links.
func breakLinks(links []*proxy.Proxy, do func(*proxy.Proxy)) injectFunc {
	return func(ctx context.Context, lasts time.Duration) error {
		for _, l := range links {
			do(l)
		}
		retry.Sleep(ctx, lasts)
		for _, l := range links {
			l.Heal()
		}
		return nil
	}
}

// rollingRestart returns an injection that restarts the services one after another with SIGTERM, as
// an upgrade does.
func rollingRestart(services []*service) injectFunc {
	return func(ctx context.Context, _ time.Duration) error {
		for _, s := range services {
			s.terminate()
			if err := s.start(); err != nil {
				return err
			}
			if err := s.awaitReady(ctx, recoverTimeout); err != nil {
				return err
			}
		}
		return nil
	}
}
