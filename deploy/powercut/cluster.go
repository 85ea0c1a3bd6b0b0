//go:build linux

package powercut

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hookstart/hookstart/deploy/powercut/internal/disk"
	"github.com/hookstart/hookstart/shared/child"
	"github.com/hookstart/hookstart/shared/embednats/freeport"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/runner"
	"github.com/hookstart/hookstart/shared/stream"
)

// Process names (argv[0]) that make this binary act as one of the programs of a cluster.
const (
	roleServer   = "powercut-nats-server"
	roleIngress  = "powercut-ingress"
	roleExecutor = "powercut-executor"
	roleRunner   = "powercut-runner"
)

// ownStreamQueue is the name of the queue that has its own stream.
const ownStreamQueue = "own"

// cluster is an installation on several machines. Each NATS server has its own machine, and one
// more machine runs an ingress, an executor with SQLite, and a runner. The programs keep their
// addresses across power cuts.
type cluster struct {
	folder                  string
	machines                []*machine
	ports                   []*freeport.Port
	natsURLs                []string // URLs of the NATS servers
	ingress, executor       *freeport.Port
	ingressOps, executorOps *freeport.Port
}

func newCluster(
	folder string, servers int, model disk.Model, syncAlways bool, random disk.Randomness,
) (_ *cluster, err error) {
	c := &cluster{folder: folder}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	clients, routes := make([]*freeport.Port, servers), make([]*freeport.Port, servers)
	ports := []**freeport.Port{&c.ingress, &c.executor, &c.ingressOps, &c.executorOps}
	for n := range servers {
		ports = append(ports, &clients[n], &routes[n])
	}
	for _, port := range ports {
		if *port, err = freeport.Reserve(); err != nil {
			return nil, err
		}
		c.ports = append(c.ports, *port)
	}
	var routeURLs []string
	for n := range servers {
		c.natsURLs = append(c.natsURLs, "nats://"+clients[n].Addr())
		routeURLs = append(routeURLs, "nats://"+routes[n].Addr())
	}
	for n := range servers {
		err := c.addMachine("nats-"+strconv.Itoa(n), model, random,
			c.serverStarter(n, clients[n], routes[n], routeURLs, syncAlways))
		if err != nil {
			return nil, err
		}
	}
	return c, c.addMachine("services", model, random,
		c.programStarter(roleExecutor, func(mounted string) []string {
			return []string{
				"--addr=" + c.executor.Addr(), "--ops-addr=" + c.executorOps.Addr(),
				"--database-url=sqlite:" + filepath.Join(mounted, "executions.db"),
				"--nats-url=" + c.natsURL(), "--connect-timeout=" + clusterStartTimeout.String(),
				"--replicas=" + strconv.Itoa(servers), "--admin-token=" + adminToken,
				"--public-url=http://" + c.ingress.Addr(), "--log-level=warn",
			}
		}),
		c.programStarter(roleIngress, func(string) []string {
			return []string{
				"--addr=" + c.ingress.Addr(), "--ops-addr=" + c.ingressOps.Addr(),
				"--nats-url=" + c.natsURL(), "--connect-timeout=" + clusterStartTimeout.String(),
				"--log-level=warn",
			}
		}),
		c.programStarter(roleRunner, func(string) []string {
			args := []string{c.natsURL()}
			for _, t := range c.targets() {
				args = append(args, t.queue)
			}
			return args
		}))
}

// clusterStartTimeout is how long a cluster may take to start: the NATS servers elect leaders, and
// the other programs connect to them and become ready. This usually takes seconds, but on a very
// busy machine it takes minutes.
const clusterStartTimeout = 5 * time.Minute

func (c *cluster) addMachine(
	name string, model disk.Model, random disk.Randomness, programs ...startProgramFunc,
) error {
	m, err := newMachine(filepath.Join(c.folder, name), model, random, programs...)
	c.machines = append(c.machines, m)
	return err
}

// serverStarter returns a function that starts a NATS server with the settings of deploy/nats, but
// without TLS and accounts, which do not affect how the server writes its files.
func (c *cluster) serverStarter(
	n int, client, route *freeport.Port, routes []string, syncAlways bool,
) startProgramFunc {
	name, interval := "nats-"+strconv.Itoa(n), "120s"
	if syncAlways {
		interval = "always"
	}
	return func(mounted string) (*child.Process, error) {
		config := filepath.Join(c.folder, name+".conf")
		text := fmt.Sprintf(`
server_name: %s
listen: "%s"
jetstream { store_dir: "%s", sync_interval: "%s" }
max_payload: 1MB
cluster { name: powercut, listen: "%s", routes: [%s], no_advertise: true }
`, name, client.Addr(), mounted, interval, route.Addr(), strings.Join(routes, ", "))
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			return nil, err
		}
		return c.launch(roleServer, name, "-c", config)
	}
}

// programStarter returns a function that starts a program in the given role. args returns the
// program's arguments, given the folder on which the machine's disk is mounted.
func (c *cluster) programStarter(role string, args func(mounted string) []string) startProgramFunc {
	return func(mounted string) (*child.Process, error) {
		return c.launch(role, role, args(mounted)...)
	}
}

// launch starts a program and appends its output to a log with the given name.
func (c *cluster) launch(role, name string, args ...string) (*child.Process, error) {
	cmd, err := child.SelfCommand(role, args...)
	if err != nil {
		return nil, err
	}
	return child.StartWithLogFile(cmd, c.logPath(name))
}

func (c *cluster) logPath(name string) string { return filepath.Join(c.folder, name+".log") }
func (c *cluster) executorURL() string        { return "http://" + c.executor.Addr() }
func (c *cluster) natsURL() string            { return strings.Join(c.natsURLs, ",") }

// targets returns two workflows: one in the default queue, and one in a queue with its own stream.
func (c *cluster) targets() []targetWorkflow {
	return []targetWorkflow{
		{workflowID: workflowID, queue: execution.DefaultQueue},
		{workflowID: workflowID + "-own", queue: ownStreamQueue, layout: stream.Layout{Own: true}},
	}
}

func (c *cluster) start() error {
	for _, m := range c.machines {
		if err := m.start(); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) cutPower() error { return cutPowerOfAll(c.machines) }

func (c *cluster) close() {
	for _, p := range c.ports {
		p.Release()
	}
}

// startAndAwaitReady turns all machines on, and then waits until the ingress and the executor are
// ready. If they do not become ready, the error includes the ends of their logs.
func (c *cluster) startAndAwaitReady(ctx context.Context) error {
	if err := c.start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, clusterStartTimeout)
	defer cancel()
	for _, ops := range []*freeport.Port{c.executorOps, c.ingressOps} {
		if err := c.awaitReady(ctx, "http://"+ops.Addr()+"/readyz"); err != nil {
			return fmt.Errorf("%w\nexecutor: %s\ningress: %s", err,
				fileTail(c.logPath(roleExecutor)), fileTail(c.logPath(roleIngress)))
		}
	}
	return nil
}

// awaitReady waits until a request to the URL is answered with 200. It returns an error as soon as
// one of the processes exits.
func (c *cluster) awaitReady(ctx context.Context, url string) (err error) {
	retry.Until(ctx, 50*time.Millisecond, func() bool {
		for _, m := range c.machines {
			for _, p := range m.processes {
				select {
				case <-p.Exited():
					err = fmt.Errorf("a program on %s ended: %s", filepath.Base(m.folder),
						p.State())
					return true
				default:
				}
			}
		}
		status, text, failure := child.HTTPGet(ctx, url)
		if err = failure; err == nil && status != http.StatusOK {
			err = fmt.Errorf("%s: %d %s", url, status, text)
		}
		return err == nil
	})
	return err
}

// runRunner runs a runner for each of the queues, until the process is killed.
func runRunner(natsURL string, queues []string) error {
	nc, err := nats.Connect(natsURL, nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true),
		nats.ReconnectWait(100*time.Millisecond))
	if err != nil {
		return err
	}
	ctx := context.Background()
	var all sync.WaitGroup
	for _, queue := range queues {
		all.Go(func() {
			// Repeat the call, because it fails while the stream does not exist yet.
			retry.Until(ctx, time.Second, func() bool {
				err := runner.Run(ctx, nc, runner.Options{
					Queue: queue, Group: "main", AckWait: 5 * time.Second,
				}, func(context.Context, runner.Execution) (any, error) { return struct{}{}, nil })
				_, _ = fmt.Fprintln(os.Stderr, err)
				return false
			})
		})
	}
	all.Wait()
	return nil
}
