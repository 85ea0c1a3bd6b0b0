package bench

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/stream"
)

// target is where requests go.
type target struct {
	addr, path string // the path with the query
	first      int    // number of the first workflow, in place of that in the path
}

// system is a variant that runs.
type system struct {
	name string
	target
	processes []*process
	nats      *process // the one of them that is a NATS server and nothing else
	executor  *process // the one of them that is an executor and nothing else
	apiAddr   string   // of the operators' API
	// How long the ingress took to be ready, if it is a process of its own.
	readyAfter time.Duration

	nc      *nats.Conn
	js      jetstream.JetStream
	records bool // an executor is at work
}

// variant is one way to answer the requests.
type variant struct {
	what    string
	install installer
}

// bare is the name of the yardstick.
const bare = "bare"

// variantNames are all, in the order of the tables.
var variantNames = []string{bare, "http", "bare-embedded", "hookstart", "hookstart-recording", "hookstart-local", "hookstart-other", "hookstart-local-other"}

var variants = map[string]variant{
	bare:                    {"router, body, one async publish to a NATS server of its own, PubAck, answer", installBare},
	"http":                  {"the same without the publish", installHTTP},
	"bare-embedded":         {"bare, with the NATS server in the same process", installEmbedded},
	"hookstart":             {"ingress and NATS server; the executor has ended after the setup, as bare has no consumer either", installIngress},
	"hookstart-recording":   {"ingress, NATS server, and executor that records into SQLite", installRecording},
	"hookstart-local":       {"all of hookstart in one process, as shipped, recording into SQLite", installLocal},
	"hookstart-other":       {"hookstart of the other build", otherBuild(installIngress)},
	"hookstart-local-other": {"hookstart-local of the other build", otherBuild(installLocal)},
}

// installer starts a variant. What it returns has to be closed, with an error too.
type installer func(context.Context, *builder) (*system, error)

// otherBuild is a variant of the other build.
func otherBuild(install installer) installer {
	return func(ctx context.Context, b *builder) (*system, error) {
		other := *b
		other.bin = b.other
		return install(ctx, &other)
	}
}

func installBare(ctx context.Context, b *builder) (*system, error) {
	s := &system{name: b.name}
	natsAddr, err := s.startNATS(ctx, b)
	if err != nil {
		return s, err
	}
	return s, s.startOwn(ctx, b, roleBare, "nats://"+natsAddr)
}

func installEmbedded(ctx context.Context, b *builder) (*system, error) {
	s := &system{name: b.name}
	return s, s.startOwn(ctx, b, roleEmbedded, b.dir("nats"))
}

func installHTTP(ctx context.Context, b *builder) (*system, error) {
	s := &system{name: b.name}
	return s, s.startOwn(ctx, b, roleHTTP)
}

// startOwn starts one of the bench's own programs that answers requests.
func (s *system) startOwn(ctx context.Context, b *builder, role string, args ...string) error {
	p, err := s.add(b.start(role, args...))
	if err != nil {
		return err
	}
	at, err := p.awaitReady(ctx, role)
	s.target = target{addr: at.Addr, path: barePath}
	return err
}

func (s *system) add(p *process, err error) (*process, error) {
	if err == nil {
		s.processes = append(s.processes, p)
	}
	return p, err
}

func (s *system) startNATS(ctx context.Context, b *builder) (addr string, err error) {
	if s.nats, err = s.add(b.start(roleNATS, b.dir("nats"))); err != nil {
		return "", err
	}
	at, err := s.nats.awaitReady(ctx, roleNATS)
	if err != nil {
		return "", err
	}
	return at.Addr, s.connect("nats://" + at.Addr)
}

func (s *system) connect(url string) (err error) {
	if s.nc, err = nats.Connect(url, nats.Name("bench")); err != nil {
		return err
	}
	s.js, err = jetstream.New(s.nc)
	return err
}

func installRecording(ctx context.Context, b *builder) (*system, error) {
	s, err := installServices(ctx, b)
	s.records = true
	return s, err
}

func installIngress(ctx context.Context, b *builder) (*system, error) {
	s, err := installServices(ctx, b)
	if err != nil {
		return s, err
	}
	s.executor.stop()
	s.processes = slices.DeleteFunc(s.processes, func(p *process) bool { return p == s.executor })
	return s, nil
}

func installServices(ctx context.Context, b *builder) (*system, error) {
	s := &system{name: b.name}
	natsAddr, err := s.startNATS(ctx, b)
	if err != nil {
		return s, err
	}
	databaseURL := b.databaseURL
	if databaseURL == "" {
		databaseURL = "sqlite:" + b.dir("executor") + ".db"
	}
	if s.executor, err = s.add(b.start(roleExecutor, "--addr=127.0.0.1:0", "--ops-addr=127.0.0.1:0", "--nats-url="+natsAddr,
		"--database-url="+databaseURL, "--admin-token="+adminToken)); err != nil {
		return s, err
	}
	executorAt, err := s.executor.awaitReady(ctx, roleExecutor)
	if err != nil {
		return s, err
	}
	s.apiAddr = executorAt.Addr
	if err := s.makeWorkflows(ctx, b.workflows); err != nil {
		return s, err
	}
	began := time.Now()
	ingress, err := s.add(b.start(roleIngress, "--addr=127.0.0.1:0", "--ops-addr=127.0.0.1:0", "--nats-url="+natsAddr))
	if err != nil {
		return s, err
	}
	ingressAt, err := ingress.awaitReady(ctx, roleIngress)
	s.readyAfter, s.addr = time.Since(began), ingressAt.Addr
	return s, err
}

func installLocal(ctx context.Context, b *builder) (*system, error) {
	s := &system{name: b.name, records: true}
	p, err := s.add(b.start(roleLocal, "--data-dir="+b.dir("local"), "--ingress-addr=127.0.0.1:0", "--executor-addr=127.0.0.1:0",
		"--nats-addr=127.0.0.1:0", "--ops-addr=127.0.0.1:0", "--admin-token="+adminToken, "--no-demo"))
	if err != nil {
		return s, err
	}
	natsURL := ""
	if err := p.awaitLine(ctx, func(line string) bool {
		key, value, _ := strings.Cut(line, " ")
		natsURL = strings.TrimSpace(value)
		return key == "NATS"
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

// cpu is the CPU time that the processes have used so far.
func (s *system) cpu() (all, ofNATS time.Duration, err error) {
	for _, p := range s.processes {
		used, err := cpuTime(p.PID())
		if err != nil {
			return 0, 0, errors.Join(err, errors.New(p.name+" has ended"))
		}
		all += used
		if p == s.nats {
			ofNATS = used
		}
	}
	return all, ofNATS, nil
}

// recordTimeout is how long the executor may take for what one burst left behind.
const recordTimeout = 2 * time.Minute

// recorderName is the executor's consumer.
const recorderName = "executor"

// settle waits until everything is recorded, if anything is.
func (s *system) settle(ctx context.Context) error {
	if !s.records {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if n, err := s.unrecorded(ctx); n == 0 || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.New("the executor does not keep up")
		case <-tick.C:
		}
	}
}

// unrecorded is how many messages are not recorded yet.
func (s *system) unrecorded(ctx context.Context) (int, error) {
	consumer, err := s.js.Consumer(ctx, stream.Name, recorderName)
	if err != nil {
		return 0, err
	}
	info := consumer.CachedInfo()
	return int(info.NumPending) + info.NumAckPending, nil //nolint:gosec // far from any bound
}

// empty throws away what a burst has left on the disk, so that no turn finds more than
// another did. The server remembers the delivery IDs, as it would in reality.
func (s *system) empty(ctx context.Context) error {
	for _, p := range s.processes {
		if err := os.Truncate(p.log, 0); err != nil {
			return err
		}
	}
	if s.js == nil {
		return nil
	}
	all, err := s.js.Stream(ctx, stream.Name)
	if err != nil {
		return err
	}
	return all.Purge(ctx)
}

func (s *system) close() {
	if s.nc != nil {
		s.nc.Close()
	}
	for _, p := range slices.Backward(s.processes) {
		p.stop() // not killed: it may have a profile to write
	}
}
