// Package natstest starts real NATS servers with JetStream for tests: a single server or a cluster,
// in the test's process or in separate processes that can be killed. Nothing needs to be installed.
//
//	func TestMyRunner(t *testing.T) {
//		server := natstest.Start(t)
//		nc := server.Connect(t)
//		// Run the code under test with nc or with server.URL().
//		server.Restart() // It keeps its port and its messages.
//		// Check that nothing was lost.
//	}
//
// The functions differ in where the servers run:
//
//   - [Start]: a server in the test's process. It starts in milliseconds, so every test can have
//     its own.
//   - [StartProcess]: a server in a separate process, to be killed ([Node.Kill]) or frozen
//     ([Node.Pause]).
//   - [StartCluster]: a cluster in the test's process, for streams with several replicas. A test
//     can stop one of the servers, for example the leader of a stream ([Cluster.Leader]).
//   - [StartProcessCluster]: a cluster whose servers run in separate processes.
//
// All servers listen on 127.0.0.1 without a password, keep their data in t.TempDir(), and are
// stopped when the test ends. Functions fail with t.Fatal, so call them from the test's goroutine.
//
// A server process is the test binary itself, started once more. A package that starts server
// processes needs
//
//	func TestMain(m *testing.M) { os.Exit(natstest.Main(m)) }
package natstest

import (
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hookstart/hookstart/shared/embednats"
	"github.com/hookstart/hookstart/shared/embednats/freeport"
)

// Option changes how a server runs, for example:
//
//	natstest.Start(t, func(o *embednats.Options) { o.SyncAlways = true })
//
// By default, StoreDir is a new folder, and Port is a free port that stays the same across
// restarts. Options apply to every node of a cluster, except for StoreDir, Port, Name and Cluster,
// which natstest sets. Log is not called if the server runs in a process of its own.
type Option func(*embednats.Options)

// Node is one server. It is safe for concurrent use.
type Node struct {
	tb        testing.TB
	opts      embednats.Options
	asProcess bool

	mu     sync.Mutex
	server *embednats.Server // nil unless it is running in this process
	child  *process          // nil unless it is running in a separate process
}

// Start starts a server in the test's process. The server is stopped when the test ends.
func Start(tb testing.TB, opts ...Option) *Node {
	tb.Helper()
	return startAlone(tb, false, opts)
}

// StartProcess starts a server in a separate process. The server is killed when the test ends, or
// when the process that runs the test ends.
func StartProcess(tb testing.TB, opts ...Option) *Node {
	tb.Helper()
	return startAlone(tb, true, opts)
}

func startAlone(tb testing.TB, asProcess bool, opts []Option) *Node {
	tb.Helper()
	o := embednats.Options{}
	for _, opt := range opts {
		opt(&o)
	}
	if o.StoreDir == "" {
		o.StoreDir = tb.TempDir()
	}
	if o.NoListener {
		tb.Fatal("natstest: a test's server needs a listener; use embednats without one")
	}
	if o.Port == 0 {
		o.Port = reservePort(tb)
	}
	n := newNode(tb, asProcess, o)
	n.Restart()
	return n
}

// newNode returns a Node whose server has not been started. The server will be stopped when the
// test ends.
func newNode(tb testing.TB, asProcess bool, o embednats.Options) *Node {
	n := &Node{tb: tb, opts: o, asProcess: asProcess}
	tb.Cleanup(n.stopAtTestEnd)
	return n
}

// URL returns the URL for clients. It stays the same across restarts.
func (n *Node) URL() string {
	host := n.opts.Host
	if host == "" {
		host = "127.0.0.1"
	}
	return "nats://" + net.JoinHostPort(host, strconv.Itoa(n.opts.Port))
}

// StoreDir returns the folder that contains the server's streams.
func (n *Node) StoreDir() string { return n.opts.StoreDir }

// Connect connects a client, and closes it when the test tb ends. Unless opts say otherwise, the
// client reconnects quickly and indefinitely.
func (n *Node) Connect(tb testing.TB, opts ...nats.Option) *nats.Conn {
	tb.Helper()
	return connect(tb, n.URL(), opts)
}

func connect(tb testing.TB, urls string, opts []nats.Option) *nats.Conn {
	tb.Helper()
	nc, err := nats.Connect(urls, append([]nats.Option{
		nats.Name(tb.Name()),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(20 * time.Millisecond),
		nats.ReconnectJitter(5*time.Millisecond, 5*time.Millisecond),
	}, opts...)...)
	if err != nil {
		tb.Fatalf("natstest: connect to %s: %v", urls, err)
	}
	tb.Cleanup(nc.Close)
	return nc
}

// Stop shuts down the server gracefully and waits until it has stopped. If its process is paused,
// the process is resumed first.
func (n *Node) Stop() {
	n.tb.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stop()
}

func (n *Node) stop() {
	n.tb.Helper()
	if n.server != nil {
		n.server.Shutdown()
		n.server = nil
	}
	if n.child != nil {
		n.resume()
		err := n.child.stop()
		n.child = nil
		if err != nil {
			n.tb.Fatalf("natstest: stop the server process: %v", err)
		}
	}
}

// Restart stops the server if it is running, starts it with the same folder and port, and waits
// until clients can connect.
func (n *Node) Restart() {
	n.tb.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stop()
	var err error
	if n.asProcess {
		n.child, err = startProcess(n.opts)
	} else {
		n.server, err = embednats.Start(n.opts)
	}
	if err != nil {
		n.tb.Fatalf("natstest: start: %v", err)
	}
}

// Kill kills a server process with SIGKILL and waits until it has exited. It needs [StartProcess]
// or [StartProcessCluster].
func (n *Node) Kill() {
	n.tb.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.requireProcess("kill")
	n.child.Kill()
	n.child = nil
}

// Pause freezes a server process: its connections stay open but it does not respond, as when a
// machine hangs. It needs [StartProcess] or [StartProcessCluster], and a Unix system.
func (n *Node) Pause() {
	n.tb.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.requireProcess("pause")
	if n.child.paused {
		return
	}
	if err := pause(n.child); err != nil {
		n.tb.Fatalf("natstest: pause the server process: %v", err)
	}
	n.child.paused = true
}

// Resume lets a paused server continue. It does nothing if the server is not paused.
func (n *Node) Resume() {
	n.tb.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.resume()
}

func (n *Node) resume() {
	n.tb.Helper()
	if n.child == nil || !n.child.paused {
		return
	}
	if err := resume(n.child); err != nil {
		n.tb.Fatalf("natstest: resume the server process: %v", err)
	}
	n.child.paused = false
}

func (n *Node) requireProcess(verb string) {
	n.tb.Helper()
	switch {
	case !n.asProcess:
		n.tb.Fatalf("natstest: cannot %s a server inside the test's process; start it as a process",
			verb)
	case n.child == nil:
		n.tb.Fatalf("natstest: cannot %s a server that does not run", verb)
	}
}

// isResponsive reports whether the server is running and not paused.
func (n *Node) isResponsive() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.server != nil || n.child != nil && !n.child.paused
}

// stopAtTestEnd stops the server when its test ends. If the server process has already exited by
// itself, the test fails.
func (n *Node) stopAtTestEnd() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.server != nil {
		n.server.Shutdown()
		n.server = nil
	}
	if n.child != nil {
		select {
		case <-n.child.Exited():
			n.tb.Errorf("natstest: the server process ended by itself: %v", n.child.exitError())
		default:
		}
		n.child.Kill()
	}
}

// reservePort reserves a free TCP port until the test ends, even while the server is stopped.
func reservePort(tb testing.TB) int {
	tb.Helper()
	port, err := freeport.Reserve()
	if err != nil {
		tb.Fatalf("natstest: %v", err)
	}
	tb.Cleanup(port.Release)
	return port.Number
}
