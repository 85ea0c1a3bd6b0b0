package bench

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/pgtest"
	"github.com/hookstart/hookstart/shared/embednats"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/stream"
)

// requestTarget holds the address, the workflows and the credentials of the requests.
type requestTarget struct {
	addr, path string // HOST:PORT, and the path with the query of the first workflow's webhook
	// firstWorkflow is the number of the first workflow that gets requests.
	firstWorkflow int
	signed        bool   // whether all requests go to one workflow and are signed like Stripe's
	bearerToken   string // token in the header Authorization; "" means that it is in the path
}

// system is a running variant: its processes, their addresses, and a connection to its NATS server.
type system struct {
	name string
	requestTarget
	processes    []*process
	nats         *process // the separate process of the NATS server; nil means that there is none
	executor     *process // the separate process of the executor; nil means that there is none
	apiAddr      string   // address of the operators' API
	nodeSettings nodeSettings
	// ingressReadyAfter is how long the ingress took to become ready, if it is a separate process.
	ingressReadyAfter time.Duration

	nc          *nats.Conn
	js          jetstream.JetStream
	hasExecutor bool // whether an executor is running
	hasRunner   bool // whether a runner is running

	// removeFiles deletes the files that remain after the processes have ended. nil means that
	// there are none.
	removeFiles func() error
}

// variant is one of the setups that the benchmark compares: a combination of programs and settings.
type variant struct {
	description string
	install     installer
}

// variantBare is the name of the variant with which all others are compared.
const variantBare = "bare"

// variantNames lists the variants of this build in the order of the tables.
var variantNames = []string{
	variantBare, "http", "bare-embedded", "hookstart", "hookstart-stripe", "hookstart-bearer",
	"hookstart-filter", "hookstart-order", "hookstart-recording", "hookstart-postgres",
	"hookstart-running", "hookstart-answer", "hookstart-local",
}

var variants = map[string]variant{
	variantBare: {
		"router, body, one async publish to a NATS server of its own, PubAck, answer", installBare,
	},
	"http":          {"the same without the publish", installHTTP},
	"bare-embedded": {"bare, with the NATS server in the same process", installEmbedded},
	"hookstart": {
		"ingress and NATS server; the executor has ended after the setup, as bare has no " +
			"consumer either", installIngress,
	},
	"hookstart-stripe": {
		"hookstart, and every request is verified as Stripe's, with its delivery ID in the body",
		installStripe,
	},
	"hookstart-bearer": {
		"hookstart, and the token is in the header Authorization",
		installer(installIngress).withNodeSettings(nodeSettings{bearerAuth: true}),
	},
	"hookstart-filter": {
		"hookstart, and every node has a filter that reads the body and lets every request through",
		installer(installIngress).withNodeSettings(nodeSettings{trigger: api.PutTrigger{
			Filter: []byte(`{"ptr:/event":"order.paid"}`),
		}}),
	},
	"hookstart-order": {
		"hookstart, and every node takes an order key from the body",
		installer(installIngress).withNodeSettings(nodeSettings{trigger: api.PutTrigger{
			OrderKey: "ptr:/order/id",
		}}),
	},
	"hookstart-recording": {
		"ingress, NATS server, and executor that records into SQLite", installWithExecutor,
	},
	"hookstart-postgres": {
		"ingress, NATS server, and executor that records into a PostgreSQL server, whose CPU is " +
			"not counted", installPostgres,
	},
	"hookstart-running": {
		"ingress, NATS server, executor that records into SQLite, and a runner whose handler " +
			"does nothing; until every end is recorded", installWithRunner,
	},
	"hookstart-answer": {
		"hookstart-running, and every request is answered when its execution has ended",
		installer(installWithRunner).withNodeSettings(nodeSettings{trigger: api.PutTrigger{
			Answer: &api.Answer{WaitSeconds: 25},
		}}),
	},
	"hookstart-local": {
		"all of hookstart in one process, as shipped, recording into SQLite", installLocal,
	},
}

// installer starts a variant. If the returned system is not nil, the caller must close it, even
// after an error.
type installer func(context.Context, *launcher) (*system, error)

// withNodeSettings returns an installer that starts the same variant as i, but gives the trigger
// nodes the settings in node.
func (i installer) withNodeSettings(node nodeSettings) installer {
	return func(ctx context.Context, b *launcher) (*system, error) {
		own := *b
		own.nodeSettings = node
		return i(ctx, &own)
	}
}

// otherBuildSuffix is the suffix of variants that run the programs of another build, with which
// this build is compared. These programs are in launcher.otherBinFolder.
const otherBuildSuffix = "-other"

// findVariant returns the variant with the given name. If there is none, the result's install is
// nil.
func findVariant(name string) variant {
	name, isOther := strings.CutSuffix(name, otherBuildSuffix)
	v := variants[name]
	if !isOther || v.install == nil {
		return v
	}
	return variant{name + " of the other build; a runner is this build's", func(
		ctx context.Context, b *launcher,
	) (*system, error) {
		other := *b
		other.binFolder = b.otherBinFolder
		return v.install(ctx, &other)
	}}
}

func installBare(ctx context.Context, b *launcher) (*system, error) {
	s := &system{name: b.name}
	natsAddr, err := s.startNATS(ctx, b)
	if err != nil {
		return s, err
	}
	return s, s.startBenchProgram(ctx, b, roleBare, "nats://"+natsAddr)
}

func installEmbedded(ctx context.Context, b *launcher) (*system, error) {
	s := &system{name: b.name}
	return s, s.startBenchProgram(ctx, b, roleEmbedded, b.dataDir("nats"))
}

func installHTTP(ctx context.Context, b *launcher) (*system, error) {
	s := &system{name: b.name}
	return s, s.startBenchProgram(ctx, b, roleHTTP)
}

// startBenchProgram starts one of the benchmark's own HTTP servers, and makes it the target of the
// requests.
func (s *system) startBenchProgram(
	ctx context.Context, b *launcher, role string, args ...string,
) error {
	p, err := s.addProcess(b.start(role, args...))
	if err != nil {
		return err
	}
	at, err := p.awaitReady(ctx, role)
	s.requestTarget = requestTarget{addr: at.Addr, path: firstWebhookPath}
	return err
}

func (s *system) addProcess(p *process, err error) (*process, error) {
	if err == nil {
		s.processes = append(s.processes, p)
	}
	return p, err
}

func (s *system) startNATS(ctx context.Context, b *launcher) (addr string, err error) {
	options := embednats.Options{StoreDir: b.dataDir("nats")}
	if s.nats, addr, err = s.startNATSServer(ctx, b, options); err != nil {
		return "", err
	}
	return addr, s.connect("nats://" + addr)
}

// startNATSServer starts a NATS server and returns its address.
func (s *system) startNATSServer(
	ctx context.Context, b *launcher, options embednats.Options,
) (p *process, addr string, err error) {
	arg, err := json.Marshal(options)
	if err != nil {
		return nil, "", err
	}
	if p, err = s.addProcess(b.start(roleNATS, string(arg))); err != nil {
		return nil, "", err
	}
	at, err := p.awaitReady(ctx, roleNATS)
	return p, at.Addr, err
}

func (s *system) connect(url string) (err error) {
	if s.nc, err = nats.Connect(url, nats.Name("bench")); err != nil {
		return err
	}
	s.js, err = jetstream.New(s.nc)
	return err
}

func installWithExecutor(ctx context.Context, b *launcher) (*system, error) {
	s, err := installServices(ctx, b)
	s.hasExecutor = true
	return s, err
}

// installPostgres is like installWithExecutor, but the executor records into a temporary PostgreSQL
// server, which syncs every commit, as a production server does.
func installPostgres(ctx context.Context, b *launcher) (*system, error) {
	server, err := pgtest.Create("fsync=on", "full_page_writes=on", "max_wal_size=4GB")
	if err != nil {
		return nil, err
	}
	own := *b
	own.databaseURL = server.URL()
	s, err := installWithExecutor(ctx, &own)
	s.removeFiles = server.Remove
	return s, err
}

func installWithRunner(ctx context.Context, b *launcher) (*system, error) {
	s, err := installWithExecutor(ctx, b)
	if err != nil {
		return s, err
	}
	p, err := s.addProcess(b.start(roleRunner, s.nc.ConnectedUrl()))
	if err != nil {
		return s, err
	}
	s.hasRunner = true
	_, err = p.awaitReady(ctx, roleRunner)
	return s, err
}

func installIngress(ctx context.Context, b *launcher) (*system, error) {
	s, err := installServices(ctx, b)
	if err != nil {
		return s, err
	}
	s.stopExecutor()
	return s, nil
}

// stopExecutor ends the executor. The ingress keeps working without it.
func (s *system) stopExecutor() {
	s.executor.stop()
	s.processes = slices.DeleteFunc(s.processes, func(p *process) bool { return p == s.executor })
}

func installServices(ctx context.Context, b *launcher) (*system, error) {
	s := &system{name: b.name, nodeSettings: b.nodeSettings}
	natsAddr, err := s.startNATS(ctx, b)
	if err != nil {
		return s, err
	}
	if err := s.startExecutor(ctx, b, natsAddr); err != nil {
		return s, err
	}
	if err := s.makeWorkflows(ctx, b.workflows); err != nil {
		return s, err
	}
	if b.secretsKey != "" {
		if err := s.setStripeSender(ctx); err != nil {
			return s, err
		}
	}
	began := time.Now()
	s.addr, err = s.startIngress(ctx, b, natsAddr)
	s.ingressReadyAfter = time.Since(began)
	return s, err
}

// secretsKeyFlags returns the flag that names the file with the key that encrypts senders' secrets,
// or no flag if b.secretsKey is "".
func (b *launcher) secretsKeyFlags() []string {
	if b.secretsKey == "" {
		return nil
	}
	return []string{"--secrets-key-file=" + b.secretsKey}
}

// startIngress starts an ingress that connects to the NATS server at natsAddr, and returns its
// address.
func (s *system) startIngress(
	ctx context.Context, b *launcher, natsAddr string,
) (addr string, err error) {
	p, err := s.addProcess(b.start(roleIngress, append(b.secretsKeyFlags(), "--addr=127.0.0.1:0",
		"--ops-addr=127.0.0.1:0", "--nats-url="+natsAddr)...))
	if err != nil {
		return "", err
	}
	at, err := p.awaitReady(ctx, roleIngress)
	return at.Addr, err
}

// startExecutor starts an executor, with additional flags, that connects to the NATS server at
// natsAddr.
func (s *system) startExecutor(
	ctx context.Context, b *launcher, natsAddr string, flags ...string,
) (err error) {
	databaseURL := b.databaseURL
	if databaseURL == "" {
		databaseURL = "sqlite:" + b.dataDir("executor") + ".db"
	}
	flags = append(flags, b.secretsKeyFlags()...)
	if s.executor, err = s.addProcess(b.start(roleExecutor,
		append(flags, "--addr=127.0.0.1:0", "--ops-addr=127.0.0.1:0",
			"--nats-url="+natsAddr,
			"--database-url="+databaseURL, "--admin-token="+adminToken)...)); err != nil {
		return err
	}
	at, err := s.executor.awaitReady(ctx, roleExecutor)
	s.apiAddr = at.Addr
	return err
}

func installLocal(ctx context.Context, b *launcher) (*system, error) {
	s := &system{name: b.name, hasExecutor: true}
	p, err := s.addProcess(b.start(roleLocal, "--data-dir="+b.dataDir("local"),
		"--ingress-addr=127.0.0.1:0",
		"--executor-addr=127.0.0.1:0",
		"--nats-addr=127.0.0.1:0", "--ops-addr=127.0.0.1:0", "--admin-token="+adminToken,
		"--no-demo"))
	if err != nil {
		return s, err
	}
	natsURL := ""
	if err := p.awaitLine(ctx, func(line string) bool {
		key, value, _ := strings.Cut(line, " ")
		switch value = strings.TrimSpace(value); key {
		case "NATS":
			natsURL = value
		case "Metrics":
			p.opsAddr = strings.TrimSuffix(strings.TrimPrefix(value, "http://"), "/metrics")
		}
		return natsURL != "" && p.opsAddr != ""
	}); err != nil {
		return s, err
	}
	executorAt, err := p.awaitReady(ctx, roleExecutor)
	if err != nil {
		return s, err
	}
	ingressAt, err := p.awaitReady(ctx, roleIngress)
	if err != nil {
		return s, err
	}
	if err := s.connect(natsURL); err != nil {
		return s, err
	}
	s.addr, s.apiAddr = ingressAt.Addr, executorAt.Addr
	return s, s.makeWorkflows(ctx, b.workflows)
}

// cpuUsage holds the CPU time of all processes together, and the parts of it that the NATS server
// and the executor used. These parts are 0 if the NATS server or the executor has no process of its
// own.
type cpuUsage struct{ all, nats, executor time.Duration }

func (u cpuUsage) since(before cpuUsage) cpuUsage {
	return cpuUsage{u.all - before.all, u.nats - before.nats, u.executor - before.executor}
}

// cpuUsed returns the CPU time that the processes of the system have used so far.
func (s *system) cpuUsed() (u cpuUsage, err error) {
	for _, p := range s.processes {
		used, err := cpuTime(p.PID())
		if err != nil {
			return cpuUsage{}, errors.Join(err, errors.New(p.name+" has ended"))
		}
		u.all += used
		switch p {
		case s.nats:
			u.nats = used
		case s.executor:
			u.executor = used
		}
	}
	return u, nil
}

// recordTimeout is how long the executor may take to record everything after a burst.
const recordTimeout = 2 * time.Minute

// awaitProcessed waits until all messages are processed: see countUnprocessed. Without an executor
// and a runner, it returns immediately.
func (s *system) awaitProcessed(ctx context.Context) error {
	return awaitZero(ctx, recordTimeout, s.countUnprocessed)
}

// awaitZero calls count repeatedly until it returns 0 or an error. It returns an error if this
// takes longer than timeout.
func awaitZero(
	ctx context.Context, timeout time.Duration, count func(context.Context) (int, error),
) (err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var left int
	retry.Until(ctx, 20*time.Millisecond, func() bool {
		left, err = count(ctx)
		return left == 0 || err != nil
	})
	if left > 0 && err == nil {
		err = errors.New("the executor does not keep up")
	}
	return err
}

// consumerName identifies a consumer by its stream and its name in the stream.
type consumerName struct{ stream, name string }

// countUnprocessed returns how many messages still have to be processed: starts that are not
// recorded and, if there is a runner, executions that have not run and reports that are not
// recorded.
func (s *system) countUnprocessed(ctx context.Context) (int, error) {
	var consumers []consumerName
	if s.hasExecutor {
		consumers = append(consumers,
			consumerName{stream.ExecutionsName, stream.RecorderConsumerName})
	}
	if s.hasRunner { // count reports last: each execution that ends adds one
		group := stream.RunnerGroup{Queue: execution.DefaultQueue, Group: runnerGroup}
		consumers = append(consumers,
			consumerName{stream.ExecutionsName, group.ConsumerName()},
			consumerName{stream.ProgressName, stream.RecorderConsumerName})
	}
	return s.countUnacknowledged(ctx, consumers)
}

// countUnacknowledged returns the number of messages that the consumers have not acknowledged.
func (s *system) countUnacknowledged(
	ctx context.Context, consumers []consumerName,
) (waiting int, err error) {
	for _, c := range consumers {
		consumer, err := s.js.Consumer(ctx, c.stream, c.name)
		if err != nil {
			return 0, err
		}
		waiting += int(stream.Unacknowledged(consumer.CachedInfo()))
	}
	return waiting, nil
}

// clearStreamsAndLogs purges the streams and truncates the logs, so that all turns begin under the
// same conditions. The NATS server still remembers the delivery IDs, so a turn must not reuse them.
func (s *system) clearStreamsAndLogs(ctx context.Context) error {
	for _, p := range s.processes {
		if err := os.Truncate(p.logFile, 0); err != nil {
			return err
		}
	}
	if s.js == nil {
		return nil
	}
	names := []string{stream.ExecutionsName}
	if s.hasRunner {
		names = append(names, stream.ProgressName)
	}
	for _, name := range names {
		all, err := s.js.Stream(ctx, name)
		if err == nil {
			err = all.Purge(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *system) close() {
	if s.nc != nil {
		s.nc.Close()
	}
	for _, p := range slices.Backward(s.processes) {
		p.stop() // do not kill the process: it may still have to write a profile
	}
	if s.removeFiles != nil {
		_ = s.removeFiles()
	}
}
