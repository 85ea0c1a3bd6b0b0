// Package bench compares the speed of hookstart with the bare combination of its parts: a router
// that reads the body, publishes it to a separate NATS server process, and responds when the server
// has acknowledged it. Everything runs as real processes on loopback. Speeds vary between machines,
// and on one machine from minute to minute. So the variants take turns in short bursts, and each
// burst is compared with the burst of the bare combination in the same round. Recording,
// Neighbours, Isolation, Scale and DeliveryIDCost make other measurements, without such a
// comparison.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hookstart/hookstart/shared/retry"
)

// Speed holds the options of a benchmark. The struct tags define the program's flags.
type Speed struct {
	Rounds     int           `help:"How often each variant has its turn." default:"12"`
	Burst      time.Duration `help:"How long a turn is." default:"1500ms"`
	OpenRounds int           `help:"The same for the open loop; 0: none." default:"4"`
	OpenBurst  time.Duration `help:"How long a turn of the open loop is." default:"3s"`
	OpenRate   []float64     `help:"Requests per second in the open loop: each rate has its rounds and its table." default:"2000"`
	OpenShare  float64       `help:"One more table of the open loop: each variant gets this share of the requests per second that it answered in the rounds, such as 0.7. 0: none." default:"0"`
	Vegeta     bool          `help:"Send the open loop's requests with vegeta, as a check on the benchmark's own generator."`
	LoadOptions
	Workflows int      `help:"Active workflows of hookstart; the requests go round them." default:"1"`
	Variants  []string `help:"Which variants are measured; bare always is." default:"http,bare-embedded,hookstart,hookstart-recording,hookstart-local"`
	Seed      uint64   `help:"In which order they have their turns. 0: another one each time; it is printed." default:"0"`
	Other     string   `help:"Folder with the programs of another build: the variants that end in -other, to see what a change brings." placeholder:"FOLDER" type:"path"`
	Chart     string   `help:"Draw the table as an SVG file, for light and dark pages." placeholder:"FILE" type:"path"`
	Profile   string   `help:"Folder for CPU profiles of ingress, executor and hookstart-local, a file for each process of each variant, and merged.pgo, their sum, for go build -pgo. Then this binary is all programs, and the numbers are a little worse." placeholder:"FOLDER" type:"path"`
}

// LoadOptions holds the options that all measurements with HTTP requests have in common.
type LoadOptions struct {
	Connections int    `help:"Keep-alive connections that send at the same time." default:"64"`
	BodyBytes   int    `help:"Size of a body, JSON." default:"1024"`
	Bin         string `help:"Folder with the programs: make build." default:"bin" type:"path"`

	// Out receives the progress and the tables. Required.
	Out io.Writer `kong:"-"`
}

// Limits for the options, so that a typo does not fill the disk.
const (
	maxRounds        = 200
	maxBurstDuration = 10 * time.Second
	maxConnections   = 1536
	maxBodyBytes     = 102_400
	maxRate          = 50_000
	maxWorkflows     = 1_000_000
)

// checkRange returns an error if the value of the flag is less than least or greater than most.
func checkRange(flag string, value, least, most float64) error {
	if value < least || value > most {
		return fmt.Errorf("--%s must be from %v to %v", flag, least, most)
	}
	return nil
}

func (l *LoadOptions) validate() error {
	return errors.Join(
		checkRange("connections", float64(l.Connections), 1, maxConnections),
		checkRange("body-bytes", float64(l.BodyBytes), minBodyBytes, maxBodyBytes))
}

func (c *Speed) validate() error {
	problems := []error{
		c.LoadOptions.validate(),
		checkRange("rounds", float64(c.Rounds), 1, maxRounds),
		checkRange("burst", c.Burst.Seconds(), 0.01, maxBurstDuration.Seconds()),
		checkRange("open-rounds", float64(c.OpenRounds), 0, maxRounds),
		checkRange("open-burst", c.OpenBurst.Seconds(), 0.01, maxBurstDuration.Seconds()),
		checkRange("open-share", c.OpenShare, 0, 1),
		checkRange("workflows", float64(c.Workflows), 1, maxWorkflows),
	}
	for _, rate := range c.OpenRate {
		problems = append(problems, checkRange("open-rate", rate, 1, maxRate))
	}
	for _, name := range c.Variants {
		if strings.HasSuffix(name, otherBuildSuffix) && c.Other == "" {
			problems = append(problems, fmt.Errorf("--variants: %s needs --other", name))
		}
		if findVariant(name).install == nil {
			problems = append(problems,
				fmt.Errorf("--variants: %q is none of %s, nor one of them with %s", name,
					strings.Join(variantNames, ", "), otherBuildSuffix))
		}
	}
	return errors.Join(problems...)
}

// unmeasuredLeadInTime is the duration of the load before the measured burst of each turn. This
// load is not measured, because its requests are slower: the connections are new, and the processes
// were idle during the turns of the other variants.
const unmeasuredLeadInTime = 200 * time.Millisecond

// lastResponseTimeout is how long to wait for the last responses after a burst.
const lastResponseTimeout = 10 * time.Second

// warmUpTime is how long each variant runs before the first round.
const warmUpTime = time.Second

// RunSpeed runs the benchmark and writes the tables to c.Out.
func RunSpeed(ctx context.Context, c Speed) (err error) {
	if err := c.validate(); err != nil {
		return err
	}
	for c.Seed == 0 {
		c.Seed = rand.Uint64N(1_000_000) //nolint:gosec // not a secret
	}
	if c.Profile != "" {
		c.Bin = ""
		if err := os.MkdirAll(c.Profile, 0o750); err != nil {
			return err
		}
	}
	at, err := newWorkspace(c.Out)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, at.close()); err == nil && c.Profile != "" {
			err = mergeProfiles(c.Profile)
		}
	}()
	//nolint:gosec // not a secret
	s := &speedRun{Speed: c, workspace: at, random: rand.New(rand.NewPCG(c.Seed, 0))}
	_, _ = fmt.Fprintf(c.Out, "seed %d: %d connections, bodies of %d bytes, a delivery ID each\n",
		c.Seed, c.Connections, c.BodyBytes)
	if err := s.installVariants(ctx); err != nil {
		return err
	}
	// In the closed loop, every connection sends the next request as soon as it has its response.
	// In the open loop, requests are sent at a constant rate, however long the responses take.
	closed, err := s.runRounds(ctx, "round", c.Rounds, c.Burst, func(string) float64 { return 0 })
	if err != nil {
		return err
	}
	open, err := s.runOpenLoops(ctx, closed)
	if err != nil {
		return err
	}
	s.progress.Done()
	names := s.selectedVariants()
	writeClosedLoop(c.Out, names, closed)
	if c.Chart != "" {
		if err := writeChart(c.Chart, names, closed); err != nil {
			return err
		}
	}
	if c.Workflows > 1 {
		if err := writeMemoryAndReadyTimes(c.Out, s.systems); err != nil {
			return err
		}
	}
	for _, loop := range open {
		writeOpenLoop(c.Out, names, loop)
	}
	return nil
}

// speedRun holds the state of one run of the benchmark.
type speedRun struct {
	Speed
	*workspace
	random        *rand.Rand
	deliveryCount uint64 // number of delivery IDs used so far
}

// selectedVariants returns the names of the variants without duplicates: variantBare first, then
// the others in the order of s.Variants.
func (s *speedRun) selectedVariants() []string {
	names := []string{variantBare}
	for _, name := range s.Variants {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func (s *speedRun) installVariants(ctx context.Context) error {
	for _, name := range s.selectedVariants() {
		b := &launcher{
			binFolder:      s.Bin,
			otherBinFolder: s.Other,
			folder:         s.folder,
			name:           name,
			profileFolder:  s.Profile,
			workflows:      s.Workflows,
		}
		if _, err := s.startSystem(ctx, findVariant(name).install, b); err != nil {
			return err
		}
	}
	if err := s.awaitLostStartSearch(ctx); err != nil {
		return err
	}
	for _, system := range s.systems {
		s.progress.Show("warming up %s", system.name)
		if _, err := s.measureVariant(ctx, system, min(warmUpTime, s.Burst), 0); err != nil {
			return err
		}
	}
	return nil
}

// lostStartSearchWait is how long awaitLostStartSearch waits. 10 s after its start, an executor
// searches for the first time for executions whose start message is gone. After
// lostStartSearchWait, this search has certainly ended. The next one begins an hour later, unless
// the executor reconnects to NATS.
const lostStartSearchWait = 12 * time.Second

// awaitLostStartSearch waits, if there are executors, until their first search for executions whose
// start message is gone has ended. The search must be over before the first turn, because the
// stream is purged after each turn. A later search would not find the purged start messages, and
// the executor would end their executions as failed.
func (s *speedRun) awaitLostStartSearch(ctx context.Context) error {
	if !slices.ContainsFunc(s.systems, func(sys *system) bool { return sys.hasExecutor }) {
		return nil
	}
	s.progress.Show("waiting until the executors have looked for lost starts")
	retry.Sleep(ctx, lostStartSearchWait)
	if ctx.Err() != nil {
		return errInterrupted
	}
	return nil
}

// openLoopResult holds the results of one open-loop measurement, in which requests are sent to each
// variant at a constant rate.
type openLoopResult struct {
	rateDescription    string // the rate, worded for the title of the table
	latencyDescription string // what latencies are counted from, worded for the title
	rateByVariant      map[string]float64
	resultsByVariant   map[string][]turnResult
}

// runOpenLoops measures all variants at each constant rate in s.OpenRate. If s.OpenShare is not 0,
// it also measures each variant at that share of its own throughput in the closed loop. closed
// holds the results of the closed loop, keyed by variant.
func (s *speedRun) runOpenLoops(
	ctx context.Context, closed map[string][]turnResult,
) (loops []openLoopResult, err error) {
	if s.OpenRounds == 0 {
		return nil, nil
	}
	for _, rate := range s.OpenRate {
		loop := openLoopResult{
			rateDescription: fmt.Sprintf("%.0f", rate),
			rateByVariant:   map[string]float64{},
		}
		for name := range closed {
			loop.rateByVariant[name] = rate
		}
		loops = append(loops, loop)
	}
	if s.OpenShare > 0 {
		loop := openLoopResult{rateByVariant: map[string]float64{}}
		loop.rateDescription = fmt.Sprintf("%.0f %% of a variant's", s.OpenShare*100)
		for name, turns := range closed {
			can := quartilesOf(valuesOf(turns, turnResult.requestsPerSecond)).median
			loop.rateByVariant[name] = math.Round(s.OpenShare * can)
		}
		loops = append(loops, loop)
	}
	for n := range loops {
		loops[n].latencyDescription = "from the moment at which each should have begun"
		if s.Vegeta {
			loops[n].latencyDescription = "sent by vegeta, from the moment " +
				"at which it begins to send each"
		}
		what := fmt.Sprintf("open loop, %s requests per second, round", loops[n].rateDescription)
		if loops[n].resultsByVariant, err = s.runRounds(ctx, what, s.OpenRounds, s.OpenBurst,
			func(name string) float64 { return loops[n].rateByVariant[name] }); err != nil {
			return nil, err
		}
	}
	return loops, nil
}

// runRounds runs the given number of rounds, in each of which every variant has one turn. It
// returns the results of the turns, keyed by variant. The progress line begins with the text what,
// followed by the number of the round. The function rate returns the requests per second for the
// variant with the given name; 0 means the closed loop.
func (s *speedRun) runRounds(
	ctx context.Context, what string, count int, burst time.Duration, rate func(string) float64,
) (map[string][]turnResult, error) {
	turns := map[string][]turnResult{}
	last := ""
	for round := range count {
		for _, n := range s.random.Perm(len(s.systems)) {
			system := s.systems[n]
			s.progress.Show("%s %d/%d: %s%s", what, round+1, count, system.name, last)
			t, err := s.measureVariant(ctx, system, burst, rate(system.name))
			if err != nil {
				return nil, err
			}
			turns[system.name] = append(turns[system.name], t)
			last = fmt.Sprintf(" (before: %s %.0f/s)", system.name, t.requestsPerSecond())
		}
	}
	return turns, nil
}

// burstResult holds what the generator has measured in one burst of requests.
type burstResult struct {
	answered    int             // number of answered requests
	rateLimited int             // number of 429 responses
	unavailable int             // number of 503 responses
	took        time.Duration   // from the start of the burst until the last answer
	latencies   []time.Duration // of the answered requests, sorted
}

// turnResult holds the results of one turn of a variant: those of its burst, the lag of the
// recording, and the CPU time of its processes.
type turnResult struct {
	burstResult
	lag time.Duration // time from the last answer until all executions were recorded
	cpu cpuUsage
}

func (t turnResult) requestsPerSecond() float64 { return float64(t.answered) / t.took.Seconds() }

// cpuPerThousandRequests returns the CPU time per 1,000 requests, in seconds.
func (t turnResult) cpuPerThousandRequests() float64 {
	return t.cpu.all.Seconds() / float64(t.answered) * 1000
}

func (s *speedRun) measureVariant(
	ctx context.Context, target *system, burst time.Duration, rate float64,
) (turnResult, error) {
	g, err := newGenerator(target.requestTarget, s.Connections, s.BodyBytes, s.Workflows, s.Seed,
		&s.deliveryCount)
	if err != nil {
		return turnResult{}, fmt.Errorf("%s: %w", target.name, err)
	}
	defer g.close()
	measure := func(burst time.Duration) (turnResult, error) {
		if err := ctx.Err(); err != nil {
			return turnResult{}, errInterrupted
		}
		cpu, err := target.cpuUsed()
		if err != nil {
			return turnResult{}, err
		}
		run := g.run
		if s.Vegeta && rate > 0 {
			run = func(burst time.Duration, rate float64) (burstResult, error) {
				return s.runVegeta(target.requestTarget, burst, rate)
			}
		}
		r, err := run(burst, rate)
		if err != nil {
			return turnResult{}, err
		}
		// Wait until all messages of this burst are recorded, so that their cost does not count
		// towards the next burst.
		answered := time.Now()
		if err := target.awaitProcessed(ctx); err != nil {
			return turnResult{}, err
		}
		lag := time.Since(answered)
		cpuAfter, err := target.cpuUsed()
		return turnResult{burstResult: r, lag: lag, cpu: cpuAfter.since(cpu)}, err
	}
	if _, err := measure(min(unmeasuredLeadInTime, burst)); err != nil {
		return turnResult{}, fmt.Errorf("%s: %w", target.name, err)
	}
	t, err := measure(burst)
	if err != nil {
		return turnResult{}, fmt.Errorf("%s: %w", target.name, err)
	}
	return t, target.clearStreamsAndLogs(ctx)
}

// start calls g.run in the background. wait waits for it to finish, and returns its results. If g
// is nil, start does nothing, and wait returns the zero burstResult and a nil error.
func (g *generator) start(
	burst time.Duration, rate float64,
) (wait func() (burstResult, error)) {
	var result burstResult
	var err error
	var done sync.WaitGroup
	if g != nil {
		done.Go(func() { result, err = g.run(burst, rate) })
	}
	return func() (burstResult, error) {
		done.Wait()
		return result, err
	}
}

var errInterrupted = errors.New("interrupted: there is no table")
