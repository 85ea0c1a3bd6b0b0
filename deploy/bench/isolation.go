package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/stream"
	"github.com/hookstart/hookstart/shared/stream/leader"
)

// Isolation measures how strongly trouble in one queue affects another queue, the calm one. Each
// queue has its own stream, and the leaders of the streams are on different NATS servers of a
// cluster. One ingress, next to the leader of the calm queue's stream, gets the requests for both
// queues. The struct tags define the program's flags.
type Isolation struct {
	Rounds    int           `help:"How often the calm queue has a turn alone, and one beside each trouble." default:"8"`
	LagRounds int           `help:"In how many of the rounds the other queue's consumer also lags, which takes minutes each time." default:"3"`
	Burst     time.Duration `help:"How long a turn is, and a server is frozen." default:"20s"`
	Rate      float64       `help:"Requests per second to the calm queue." default:"200"`
	Flood     float64       `help:"Requests per second to the other queue while its stream is full." default:"500"`
	Frozen    float64       `help:"Requests per second to the other queue while the server that leads its stream is frozen." default:"5"`
	Lag       int           `help:"How many executions the consumer of the other queue's runners lags behind." default:"1000000"`
	Replicas  int64         `help:"Servers that store the stream of each queue: 1, or 3. With 1, a queue accepts nothing while its server is frozen; with 3, another server becomes the leader." default:"1"`
	Seed      uint64        `help:"Decides the order of the turns. 0: a random one." default:"0"`
	LoadOptions
}

const (
	maxFreeze = time.Minute
	maxLag    = 5_000_000
	// publishTimeout is the default of the ingress's --publish-timeout: how long a request occupies
	// its connection while the server that leads its stream is frozen.
	publishTimeout = 5 * time.Second
)

func (c *Isolation) validate() error {
	problems := []error{
		c.LoadOptions.validate(),
		checkRange("rounds", float64(c.Rounds), 1, maxRounds),
		checkRange("lag-rounds", float64(c.LagRounds), 0, float64(c.Rounds)),
		checkRange("burst", c.Burst.Seconds(), 0.01, maxFreeze.Seconds()),
		checkRange("rate", c.Rate, 1, maxRate),
		checkRange("flood", c.Flood, 1, maxRate),
		checkRange("frozen", c.Frozen, 0.1,
			float64(c.Connections)/min(c.Burst, publishTimeout).Seconds()),
		checkRange("lag", float64(c.Lag), 1, maxLag),
	}
	if c.Replicas != 1 && c.Replicas != numServers {
		problems = append(problems, fmt.Errorf("--replicas must be 1 or %d", numServers))
	}
	return errors.Join(problems...)
}

// calmWorkflow and troubledWorkflow are the numbers of two workflows, and calmQueue and
// troubledQueue are the names of their queues. The calm queue is measured while the troubled queue
// has trouble. Workflow 0 is in the default queue and gets no requests.
const (
	calmWorkflow, troubledWorkflow = 1, 2
	calmQueue, troubledQueue       = "calm", "troubled"
)

// calmServerIndex and troubledServerIndex are the numbers of two of the three NATS servers.
// calmServerIndex leads the streams of the calm queue, and the ingress and the executor are
// connected to it. troubledServerIndex leads the streams of the troubled queue. The third server
// only stores replicas.
const calmServerIndex, troubledServerIndex = 0, 1

// condition is the state of the troubled queue during a turn of the calm queue.
type condition int

const (
	conditionAlone condition = iota
	conditionFull
	conditionFrozen
	conditionRecordingLag
	conditionRunnerLag
	numConditions
)

func (c condition) String() string {
	return [numConditions]string{
		"alone",
		"beside a full stream",
		"beside a frozen leader",
		"beside a lag that is being recorded",
		"beside a lag that is recorded",
	}[c]
}

// isolationResult is the measurement of one turn of the calm queue. It is the zero value if the
// turn did not take place.
type isolationResult struct {
	turnResult
	troubled burstResult // results of the requests to the troubled queue

	// calmUnrecorded and troubledUnrecorded are the numbers of start messages of the two queues
	// that were not yet recorded when the turn ended.
	calmUnrecorded, troubledUnrecorded int
}

// Run makes the measurement and writes its table to c.Out.
func (c *Isolation) Run(ctx context.Context) (err error) {
	if err := c.validate(); err != nil {
		return err
	}
	for c.Seed == 0 {
		c.Seed = rand.Uint64N(1_000_000) //nolint:gosec // not a secret
	}
	at, err := newWorkspace(c.Out)
	if err != nil {
		return err
	}
	n := &isolationRun{Isolation: c, cluster: &cluster{}}
	defer func() { err = errors.Join(err, at.close(), n.releaseResources()) }()
	if _, err := at.startSystem(ctx, func(ctx context.Context, b *launcher) (*system, error) {
		n.system = &system{name: b.name}
		return n.system, n.install(ctx, b)
	}, &launcher{binFolder: c.Bin, folder: at.folder, name: "isolation"}); err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(c.Seed, 0)) //nolint:gosec // not a secret
	var rounds [][numConditions]isolationResult
	for round := range c.Rounds {
		var turns [numConditions]isolationResult
		for _, i := range random.Perm(int(conditionRunnerLag)) {
			which := condition(i)
			at.progress.Show("round %d/%d, %s", round+1, c.Rounds, which)
			if which == conditionRecordingLag && round >= c.LagRounds {
				continue
			}
			if err := n.measureCondition(ctx, which, &turns); err != nil {
				return fmt.Errorf("%s: %w", which, err)
			}
		}
		rounds = append(rounds, turns)
	}
	at.progress.Done()
	c.writeResults(rounds)
	return nil
}

// isolationRun holds the state of one Isolation measurement.
type isolationRun struct {
	*Isolation
	*cluster
	// calmIDCount and troubledIDCount are the numbers of delivery IDs used in requests to the calm
	// and to the troubled queue. lagIDCount is the number of delivery IDs used in start messages
	// that the benchmark has published itself.
	calmIDCount, troubledIDCount, lagIDCount uint64
}

// install starts three NATS servers, an executor and an ingress, and moves two queues to streams of
// their own.
func (n *isolationRun) install(ctx context.Context, b *launcher) error {
	addrs, err := n.startServers(ctx, b, clusterOptions{servers: numServers})
	if err != nil {
		return err
	}
	if err := n.connect("nats://" + addrs[calmServerIndex]); err != nil {
		return err
	}
	if err := n.awaitJetStream(ctx); err != nil {
		return err
	}
	// The registry must be replicated, so that it stays available while one server is frozen. An
	// ingress whose copy of the registry is not current refuses every request.
	if err := n.startExecutor(ctx, b, addrs[calmServerIndex],
		fmt.Sprintf("--replicas=%d", numServers)); err != nil {
		return err
	}
	if err := n.makeWorkflows(ctx, 1); err != nil {
		return err
	}
	queues := []string{calmQueue, troubledQueue}
	if err := n.storeWorkflowCopies(ctx, len(queues), func(record *registry.Workflow, number int) {
		record.Queue = queues[number]
	}); err != nil {
		return err
	}
	for _, queue := range queues {
		if err := n.setOwnStream(ctx, queue, 0); err != nil {
			return err
		}
	}
	group := stream.RunnerGroup{Queue: troubledQueue, Group: runnerGroup}
	if _, err := n.js.CreateOrUpdateConsumer(ctx, stream.OwnStreamName(troubledQueue),
		group.ConsumerConfigForLayout(stream.Layout{Own: true}, stream.RunnerAckWait)); err != nil {
		return err
	}
	if n.addr, err = n.startIngress(ctx, b, addrs[calmServerIndex]); err != nil {
		return err
	}
	return n.placeLeaders(ctx)
}

// setOwnStream moves a queue to its own stream, or changes the maximum size of that stream.
// maxBytes 0 means no limit.
func (n *isolationRun) setOwnStream(ctx context.Context, queue string, maxBytes int64) error {
	put := api.PutQueueStream{MaxBytes: maxBytes, Replicas: n.Replicas}
	if n.Replicas == 1 {
		put.PlacementTags = []string{serverTag(requiredLeaderIndex(stream.OwnStreamName(queue)))}
	}
	_, err := n.api().SetQueueStream(ctx, queue, put)
	return err
}

// requiredLeaderIndex returns the number of the NATS server that must lead the named stream. Only
// the streams of the troubled queue are led by the server that is frozen, so that the freeze does
// not affect other streams directly.
func requiredLeaderIndex(name string) int {
	switch name {
	case stream.OwnStreamName(troubledQueue), stream.OwnProgressStreamName(troubledQueue):
		return troubledServerIndex
	default:
		return calmServerIndex
	}
}

// leaderPlacementTimeout is the maximum time that placeLeaders may take. After a freeze, this
// includes the time that the replicas need to catch up.
const leaderPlacementTimeout = time.Minute

// placeLeaders moves the leader of each stream to the server that requiredLeaderIndex returns for
// it, and waits until all replicas are up to date.
func (n *isolationRun) placeLeaders(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, leaderPlacementTimeout)
	defer cancel()
	retry.Until(ctx, 100*time.Millisecond, func() bool {
		try, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		err = leader.EnsureLeaders(try, n.js, func(s *jetstream.StreamInfo) string {
			number := requiredLeaderIndex(s.Config.Name)
			if s.Config.Replicas == 1 && number == calmServerIndex {
				return "" // a stream with one replica has no other server to move to
			}
			return serverName(number)
		})
		return err == nil
	})
	return err
}

// measureCondition puts the troubled queue into the given condition, measures the calm queue
// meanwhile, restores the troubled queue, and stores the result in turns. conditionRecordingLag
// takes two measurements: one while the executors are recording the troubled queue's backlog, and
// one, stored for conditionRunnerLag, when the backlog is recorded but no runner has received it.
func (n *isolationRun) measureCondition(
	ctx context.Context, which condition, turns *[numConditions]isolationResult,
) (err error) {
	nothing := func() error { return nil }
	switch which {
	case conditionFull:
		if err := n.fillTroubledStream(ctx); err != nil {
			return err
		}
		turns[which], err = n.measure(ctx, n.Flood, nothing, nothing)
		if err == nil && turns[which].troubled.unavailable != turns[which].troubled.answered {
			err = errors.New("the stream is not full")
		}
		err = errors.Join(err, n.setOwnStream(ctx, troubledQueue, 0))
	case conditionFrozen:
		frozen := n.natsServers[troubledServerIndex]
		thaw := func() error { return frozen.Signal(syscall.SIGCONT) }
		turns[which], err = n.measure(ctx, n.Frozen,
			func() error { return frozen.Signal(syscall.SIGSTOP) }, thaw)
		err = errors.Join(err, thaw())
		// Check that the leader was really frozen. If it was, the first requests had to wait for a
		// new leader, so at least one latency is high.
		if all := turns[which].troubled.latencies; err == nil &&
			(len(all) == 0 || all[len(all)-1] < min(n.Burst/2, time.Second)) {
			err = errors.New("the leader was not frozen")
		}
	case conditionRecordingLag:
		if err := n.publishTroubledStarts(ctx, n.Lag); err != nil {
			return err
		}
		if turns[which], err = n.measure(ctx, 0, nothing, nothing); err != nil {
			return err
		}
		if err := n.awaitBothRecorded(ctx); err != nil {
			return err
		}
		turns[conditionRunnerLag], err = n.measure(ctx, 0, nothing, n.lagChecker(ctx))
	case conditionAlone:
		turns[which], err = n.measure(ctx, 0, nothing, nothing)
	case conditionRunnerLag, numConditions: // measured with conditionRecordingLag
	}
	if err != nil {
		return err
	}
	return errors.Join(n.placeLeaders(ctx), n.reset(ctx))
}

// measure sends requests to the calm queue for one burst, which lasts n.Burst, and measures them.
// Meanwhile, it sends rate requests per second to the troubled queue; 0 means none. It calls begin
// just before the burst, and end just after it.
func (n *isolationRun) measure(
	ctx context.Context, rate float64, begin, end func() error,
) (t isolationResult, err error) {
	if ctx.Err() != nil {
		return t, errInterrupted
	}
	to := n.requestTarget
	to.firstWorkflow = calmWorkflow
	calm, err := newGenerator(to, n.Connections, n.BodyBytes, 1, n.Seed, &n.calmIDCount)
	if err != nil {
		return t, err
	}
	defer calm.close()
	calm.allow503 = true
	lead := min(unmeasuredLeadInTime, n.Burst)
	if _, err = calm.run(lead, n.Rate); err != nil {
		return t, err
	}
	var troubled *generator
	if rate > 0 {
		to.firstWorkflow = troubledWorkflow
		troubled, err = newGenerator(to, n.Connections, n.BodyBytes, 1, n.Seed, &n.troubledIDCount)
		if err != nil {
			return t, err
		}
		defer troubled.close()
		troubled.allow503 = true
		// Send the first request on every connection now, in a closed loop. An open loop sends on a
		// connection only when a request is due: at a low rate, some connections would get their
		// first request so late that the ingress would have closed them, because it closes a
		// connection on which no headers arrive within a timeout.
		if _, err := troubled.run(troubledLeadInTime, 0); err != nil {
			return t, err
		}
	}
	if err := begin(); err != nil {
		return t, err
	}
	wait := troubled.start(n.Burst, rate)
	t.burstResult, err = calm.run(n.Burst, n.Rate)
	var failure error
	t.calmUnrecorded, failure = n.countUnrecordedStarts(ctx, calmQueue)
	err = errors.Join(err, failure, end())
	t.troubled, failure = wait()
	if err := errors.Join(err, failure); err != nil {
		return t, err
	}
	t.troubledUnrecorded, err = n.countUnrecordedStarts(ctx, troubledQueue)
	return t, err
}

// troubledLeadInTime is the duration of the closed loop in which each connection to the troubled
// queue sends its first request. It is short, so that these requests add only a few messages to the
// troubled queue's stream.
const troubledLeadInTime = 10 * time.Millisecond

// countUnrecordedStarts returns the number of start messages in the queues' own streams that are
// not recorded yet. If a stream has no leader, it waits until there is one.
func (n *isolationRun) countUnrecordedStarts(
	ctx context.Context, queues ...string,
) (waiting int, err error) {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	var consumers []consumerName
	for _, queue := range queues {
		consumers = append(consumers,
			consumerName{stream.OwnStreamName(queue), stream.RecorderConsumerName})
	}
	retry.Until(ctx, 20*time.Millisecond, func() bool {
		try, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		waiting, err = n.countUnacknowledged(try, consumers)
		return err == nil
	})
	return waiting, err
}

// lagRecordTimeout is how long the executor may take to record the start messages of both queues,
// including the n.Lag messages that are published for conditionRecordingLag.
const lagRecordTimeout = 30 * time.Minute

// awaitBothRecorded waits until the start messages of both queues are recorded.
func (n *isolationRun) awaitBothRecorded(ctx context.Context) error {
	return awaitZero(ctx, lagRecordTimeout, func(ctx context.Context) (int, error) {
		return n.countUnrecordedStarts(ctx, calmQueue, troubledQueue)
	})
}

// lagChecker returns a function that checks whether the troubled queue still lags. At least n.Lag
// of the queue's start messages must still be waiting for their delivery to a runner; otherwise the
// function returns an error.
func (n *isolationRun) lagChecker(ctx context.Context) func() error {
	return func() error {
		group := stream.RunnerGroup{Queue: troubledQueue, Group: runnerGroup}
		consumer, err := n.js.Consumer(ctx, stream.OwnStreamName(troubledQueue),
			group.ConsumerName())
		if err != nil {
			return err
		}
		//nolint:gosec // not negative
		if lag := consumer.CachedInfo().NumPending; lag < uint64(n.Lag) {
			return fmt.Errorf("the consumer lags by %d, not %d", lag, n.Lag)
		}
		return nil
	}
}

// reset waits until all start messages of both queues are recorded, and then empties the queues'
// streams and the logs.
func (n *isolationRun) reset(ctx context.Context) error {
	if err := n.awaitBothRecorded(ctx); err != nil {
		return err
	}
	for _, queue := range []string{calmQueue, troubledQueue} {
		own, err := n.js.Stream(ctx, stream.OwnStreamName(queue))
		if err == nil {
			err = own.Purge(ctx)
		}
		if err != nil {
			return err
		}
	}
	return n.clearStreamsAndLogs(ctx)
}

// fullStreamBytes is the maximum size of the troubled queue's stream under conditionFull. It is
// small, so that the stream is soon full.
const fullStreamBytes = 4 << 20

// errStreamFull means that a stream refused a message because it is full.
var errStreamFull = errors.New("the stream is full")

// fillTroubledStream limits the size of the troubled queue's stream, and publishes messages until
// it is full. It then waits until the executor has recorded them, so that recording does not affect
// the measurement.
func (n *isolationRun) fillTroubledStream(ctx context.Context) error {
	if err := n.setOwnStream(ctx, troubledQueue, fullStreamBytes); err != nil {
		return err
	}
	if err := n.publishTroubledStarts(ctx, fullStreamBytes); !errors.Is(err, errStreamFull) {
		return errors.Join(errors.New("the stream does not become full"), err)
	}
	return n.awaitBothRecorded(ctx)
}

// publishBatchSize is the number of messages that are published before waiting for their
// acknowledgements.
const publishBatchSize = 2_000

// streamFullDescription is the description in the server's error for a message that does not fit
// into a stream. The error's code is stream.CodeStoreFailed, which other failures have too.
const streamFullDescription = "maximum bytes exceeded"

// publishTroubledStarts publishes the given number of small start messages to the troubled queue's
// stream, as an ingress would.
func (n *isolationRun) publishTroubledStarts(ctx context.Context, count int) error {
	for count > 0 {
		batch := make([]jetstream.PubAckFuture, 0, min(count, publishBatchSize))
		for range cap(batch) {
			n.lagIDCount++
			delivery := deliveryID(n.Seed+1, n.lagIDCount) // the generators use n.Seed
			msg, err := stream.Layout{Own: true}.StartMessage(execution.Start{
				ID:         execution.IDForDelivery(workflowID(troubledWorkflow), nodeID, delivery),
				WorkflowID: workflowID(troubledWorkflow),
				NodeID:     nodeID,
				AccountID:  accountID,
				Queue:      troubledQueue,
				Source:     execution.SourceWebhook,
				DeliveryID: delivery,
				AcceptedAt: time.Now().UTC().Truncate(time.Microsecond),
				Payload: execution.Payload{
					ContentType: "application/json",
					Kind:        execution.BodyJSON,
					Body:        []byte("{}"),
				},
			})
			if err != nil {
				return err
			}
			future, err := n.js.PublishMsgAsync(msg)
			if err != nil {
				return err
			}
			batch = append(batch, future)
		}
		for _, future := range batch {
			if err := awaitStored(ctx, future); err != nil {
				return err
			}
		}
		count -= len(batch)
	}
	return nil
}

// awaitStored waits until the stream has stored a message. If the stream is full and therefore
// refuses the message, awaitStored returns errStreamFull.
func awaitStored(ctx context.Context, future jetstream.PubAckFuture) error {
	ctx, cancel := context.WithTimeout(ctx, publishAckTimeout)
	defer cancel()
	select {
	case <-future.Ok():
		return nil
	case err := <-future.Err():
		if refusal, ok := errors.AsType[*jetstream.APIError](err); ok &&
			refusal.ErrorCode == stream.CodeStoreFailed &&
			refusal.Description == streamFullDescription {
			return errStreamFull
		}
		return err
	case <-ctx.Done():
		return fmt.Errorf("a message was not stored: %w", ctx.Err())
	}
}

func (c *Isolation) writeResults(rounds [][numConditions]isolationResult) {
	title := fmt.Sprintf("A queue with its own stream (%d of %d servers) gets %g requests per "+
		"second; another such queue is in trouble. Median of the rounds of %s (quartiles), ms. "+
		"Seed %d.", c.Replicas, numServers, c.Rate, c.Burst, c.Seed)
	writeTable(c.Out, title, "the calm queue\trounds\tp50\tp99\tp50 x alone\tp99 x alone\trefused"+
		"\tnot recorded at the end", func(w io.Writer) {
		for which := range numConditions {
			turns, alone := resultsOfCondition(rounds, which)
			if len(turns) == 0 {
				continue
			}
			results, refused, unrecorded := make([]turnResult, len(turns)), 0, []float64(nil)
			for i, t := range turns {
				results[i] = t.turnResult
				refused += t.unavailable
				unrecorded = append(unrecorded, float64(t.calmUnrecorded))
			}
			_, _ = fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%d\t%s\n", which, len(turns),
				quartilesOf(valuesOf(results, latencyQuantile(0.5))).format("%.2f"),
				quartilesOf(valuesOf(results, latencyQuantile(0.99))).format("%.2f"),
				ratioQuartiles(results, alone, latencyQuantile(0.5)).format("%.2f"),
				ratioQuartiles(results, alone, latencyQuantile(0.99)).format("%.2f"),
				refused, quartilesOf(unrecorded).format("%.0f"))
		}
	})
	_, _ = fmt.Fprintln(c.Out, "\nThe other queue, in all rounds:")
	for which := conditionFull; which < numConditions; which++ {
		turns, _ := resultsOfCondition(rounds, which)
		if len(turns) == 0 {
			continue
		}
		accepted, refused, backlog := 0, 0, []float64(nil)
		for _, t := range turns {
			accepted += t.troubled.answered - t.troubled.unavailable
			refused += t.troubled.unavailable
			backlog = append(backlog, float64(t.troubledUnrecorded))
		}
		_, _ = fmt.Fprintf(c.Out, "%s: 200: %d, 503: %d; not recorded at the end of a turn: %s\n",
			strings.TrimPrefix(which.String(), "beside "), accepted, refused,
			quartilesOf(backlog).format("%.0f"))
	}
}

// resultsOfCondition returns the results from all rounds in which the condition named by which was
// measured. alone holds the results of conditionAlone from the same rounds, in the same order.
func resultsOfCondition(
	rounds [][numConditions]isolationResult, which condition,
) (turns []isolationResult, alone []turnResult) {
	for _, r := range rounds {
		if r[which].answered > 0 {
			turns = append(turns, r[which])
			alone = append(alone, r[conditionAlone].turnResult)
		}
	}
	return turns, alone
}
