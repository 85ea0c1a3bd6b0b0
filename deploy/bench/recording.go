package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hookstart/hookstart/executor/pgtest"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/retry"
)

// Recording measures, at a constant rate of requests, how much time passes from the response to the
// sender until the execution is recorded, and whether recording keeps up with the rate. The struct
// tags define the program's flags.
type Recording struct {
	Rate      float64       `help:"Requests per second." default:"5000"`
	Duration  time.Duration `help:"How long they are sent." default:"60s"`
	Databases []string      `help:"sqlite, postgres (a temporary server; initdb must be installed)." default:"sqlite,postgres"`
	Sample    int           `help:"One request in so many is looked at." default:"100"`
	LoadOptions
}

// maxLoadDuration is the maximum duration of one load. A longer load could fill the disk.
const maxLoadDuration = 10 * time.Minute

// numReportPeriods is the number of equal periods into which a load is divided. The report shows
// each period separately, so that a growing backlog is visible.
const numReportPeriods = 4

func (c *Recording) validate() error {
	problems := []error{
		c.LoadOptions.validate(),
		checkRange("rate", c.Rate, 1, maxRate),
		checkRange("duration", c.Duration.Seconds(), 0.01, maxLoadDuration.Seconds()),
		checkRange("sample", float64(c.Sample), 1,
			max(1, c.Rate*c.Duration.Seconds()/numReportPeriods)),
	}
	for _, name := range c.Databases {
		if name != sqlite && name != postgres {
			problems = append(problems,
				fmt.Errorf("--databases: %q is neither %s nor %s", name, sqlite, postgres))
		}
	}
	return errors.Join(problems...)
}

// The databases that the executor can record into.
const (
	sqlite   = "sqlite"
	postgres = "postgres"
)

// Run makes the measurement with each database and writes its table to c.Out.
func (c *Recording) Run(ctx context.Context) error {
	if err := c.validate(); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(c.Out,
		"ingress, NATS server and executor: %.0f requests per second for %s, %d connections, "+
			"bodies of %d bytes, a delivery ID each\n",
		c.Rate, c.Duration, c.Connections, c.BodyBytes)
	for _, database := range c.Databases {
		if err := c.measure(ctx, database); err != nil {
			return fmt.Errorf("%s: %w", database, err)
		}
	}
	return nil
}

// sampledRequest is a request whose recording delay is measured.
type sampledRequest struct {
	deliveryNumber uint64
	answeredAt     time.Time
	recordedAt     time.Time // its record was committed at this time at the latest
}

func (c *Recording) measure(ctx context.Context, database string) (err error) {
	at, err := newWorkspace(c.Out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, at.close()) }()
	b := &launcher{binFolder: c.Bin, folder: at.folder, name: database, workflows: 1}
	if database == postgres {
		// Use settings that are typical of a production server, so that a commit costs what it
		// costs in production.
		server, err := pgtest.Create("fsync=on", "full_page_writes=on", "max_wal_size=4GB")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, server.Remove()) }()
		defer at.closeSystems() // the programs must end before their database is removed
		b.databaseURL = server.URL()
	}
	s, err := at.startSystem(ctx, installWithExecutor, b)
	if err != nil {
		return err
	}
	var sent uint64
	g, err := newGenerator(s.requestTarget, c.Connections, c.BodyBytes, 1, 0, &sent)
	if err != nil {
		return err
	}
	defer g.close()
	at.progress.Show("warming up %s", database)
	if _, err := g.run(min(warmUpTime, c.Duration), c.Rate); err != nil {
		return err
	}
	if err := errors.Join(s.awaitProcessed(ctx), s.clearStreamsAndLogs(ctx)); err != nil {
		return err
	}

	at.progress.Show("%s: sending for %s", database, c.Duration)
	samples := c.startSampling(g)
	began := time.Now()
	waiting := s.startCountingUnrecorded(ctx, c.Duration/numReportPeriods)
	sending, err := g.run(c.Duration, c.Rate)
	if err != nil {
		return err
	}
	answered := time.Now()
	left, err := waiting()
	if err != nil {
		return err
	}
	if err := s.awaitProcessed(ctx); err != nil {
		return err
	}
	after := time.Since(answered)
	at.progress.Show("%s: reading %d records", database, len(*samples))
	if err := s.findRecordedTimes(ctx, *samples); err != nil {
		return err
	}
	at.progress.Done()
	_, _ = fmt.Fprintf(c.Out,
		"\n%s: %d requests in %s, answered in %.2f ms (p50), %.2f ms (p99); all recorded %d ms "+
			"after the last answer\n",
		database, sending.answered, sending.took.Round(10*time.Millisecond),
		durationQuantileMS(sending.latencies, 0.5), durationQuantileMS(sending.latencies, 0.99),
		after.Milliseconds())
	writeRecordingDelays(c.Out, c.Sample, began, c.Duration, *samples, left)
	return nil
}

// startSampling makes a generator add every nth request to the returned slice, where n is
// c.Sample.
func (c *Recording) startSampling(g *generator) *[]sampledRequest {
	var samples []sampledRequest
	g.onAnswer = func(number uint64, at time.Time) {
		if number%uint64(c.Sample) == 0 { //nolint:gosec // not negative
			samples = append(samples, sampledRequest{deliveryNumber: number, answeredAt: at})
		}
	}
	return &samples
}

// startCountingUnrecorded divides a load into numReportPeriods periods of the given length. In the
// background, it counts how many messages are unrecorded at the end of each period. The returned
// function waits for the last count and returns all counts.
func (s *system) startCountingUnrecorded(ctx context.Context, period time.Duration) func() ([]int,
	error) {
	var (
		left []int
		err  error
		all  sync.WaitGroup
	)
	all.Go(func() {
		began := time.Now()
		for n := 1; n <= numReportPeriods && err == nil; n++ {
			retry.Sleep(ctx, time.Until(began.Add(period*time.Duration(n))))
			if ctx.Err() != nil {
				err = errInterrupted
				return
			}
			var waiting int
			waiting, err = s.countUnprocessed(ctx)
			left = append(left, waiting)
		}
	})
	return func() ([]int, error) {
		all.Wait()
		return left, err
	}
}

// findRecordedTimes determines when the samples were recorded. Call it once the load has ended. A
// record contains only the time at which the executor began the record's batch, but the executor's
// log has the times at which batches were committed and acknowledged. The executor processes one
// batch at a time, so the first such time after the beginning of a batch is the end of that batch.
func (s *system) findRecordedTimes(ctx context.Context, samples []sampledRequest) error {
	if len(samples) == 0 {
		return nil
	}
	client := s.api()
	var latest time.Time
	for i := range samples {
		sample := &samples[i]
		record, err := client.Execution(ctx,
			execution.IDForDelivery(workflowID(0), nodeID, deliveryID(0, sample.deliveryNumber)))
		if err != nil {
			return fmt.Errorf("the record of request %d: %w", sample.deliveryNumber, err)
		}
		// RecordedAt is the beginning of the batch, rounded down to microseconds. Add one
		// microsecond, so that the time is not before the real beginning.
		sample.recordedAt = record.RecordedAt.Add(time.Microsecond)
		if sample.recordedAt.After(latest) {
			latest = sample.recordedAt
		}
	}
	batches, err := s.awaitCommitTimes(ctx, latest)
	if err != nil {
		return err
	}
	for i := range samples {
		n, _ := slices.BinarySearchFunc(batches, samples[i].recordedAt, time.Time.Compare)
		samples[i].recordedAt = batches[n]
	}
	return nil
}

// awaitCommitTimes returns the result of commitTimes once the log has the end of the batch that
// began at the given time. The executor logs a batch only after it has acknowledged it, so the log
// line may still be missing for a moment after everything is recorded.
func (s *system) awaitCommitTimes(ctx context.Context, began time.Time) ([]time.Time, error) {
	for deadline := time.Now().Add(commitLogTimeout); ; {
		batches, err := s.commitTimes()
		if err != nil {
			return nil, err
		}
		if len(batches) > 0 && !batches[len(batches)-1].Before(began) {
			return batches, nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return nil, fmt.Errorf("the executor's log has no batch of %s", began)
		}
		retry.Sleep(ctx, 20*time.Millisecond)
	}
}

// commitLogTimeout is how long the executor may take to log a batch that it has committed.
const commitLogTimeout = 5 * time.Second

// commitTimes returns the times at which batches were committed, from the executor's log.
func (s *system) commitTimes() ([]time.Time, error) {
	text, err := os.ReadFile(s.executor.logFile)
	if err != nil {
		return nil, err
	}
	var batches []time.Time
	for line := range strings.Lines(string(text)) {
		var event struct {
			Message string    `json:"msg"`
			Time    time.Time `json:"time"`
		}
		if err := json.Unmarshal([]byte(line), &event); err == nil && event.Message == "recorded" {
			batches = append(batches, event.Time)
		}
	}
	return batches, nil
}

func writeRecordingDelays(
	out io.Writer, sample int, began time.Time, duration time.Duration, samples []sampledRequest,
	unrecorded []int,
) {
	var all []time.Duration
	byPeriod := make([][]time.Duration, numReportPeriods)
	for _, s := range samples {
		took := s.recordedAt.Sub(s.answeredAt)
		period := min(max(int(s.answeredAt.Sub(began)*numReportPeriods/duration), 0),
			numReportPeriods-1)
		byPeriod[period] = append(byPeriod[period], took)
		all = append(all, took)
	}
	writeTable(out,
		fmt.Sprintf("From the answer until the record is committed, ms, of one request in %d; "+
			"below 0: it was recorded first.", sample),
		"\tsamples\tp50\tp99\tmost\tnot recorded yet at the end", func(w io.Writer) {
			row := func(name string, times []time.Duration, left string) {
				if len(times) == 0 {
					return
				}
				slices.Sort(times)
				_, _ = fmt.Fprintf(w, "%s\t%d\t%.1f\t%.1f\t%.1f\t%s\n", name, len(times),
					durationQuantileMS(times, 0.5), durationQuantileMS(times, 0.99),
					durationQuantileMS(times, 1), left)
			}
			for n, times := range byPeriod {
				row(fmt.Sprintf("%s–%s", duration*time.Duration(n)/numReportPeriods,
					duration*time.Duration(n+1)/numReportPeriods), times, fmt.Sprint(unrecorded[n]))
			}
			row("all", all, "")
		})
}
