// Package embednats runs a NATS server with JetStream in this process. Tests use package natstest,
// which is built on it.
package embednats

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gofrs/flock"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/hookstart/hookstart/shared/durable"
)

// ErrLocked means that another server is using the store folder. Start returns an error that wraps
// it.
var ErrLocked = errors.New("in use by another hookstart process")

// lockFile is the name of a file in the store folder that the running server locks. It is never
// removed, because processes that wait for the lock must find the same file.
const lockFile = "hookstart.lock"

// clusterListenTimeout is the maximum time that Start waits for the server to listen for the other
// nodes of its cluster. The server usually does so within microseconds.
const clusterListenTimeout = 10 * time.Second

// Options holds the options of a server. Only StoreDir is required.
type Options struct {
	// StoreDir is the folder of all streams. It is created with mode 0700, and locked because only
	// one server at a time may use it.
	StoreDir string

	// Host is the address to listen on. "" means 127.0.0.1. Any other address exposes the server to
	// the network, without a password.
	Host string

	// Port is the TCP port for clients. 0 means any free port; see ClientURL.
	Port int

	// NoListener means that the server opens no port for clients: only clients that use InProcess
	// can connect. It cannot be combined with Cluster.
	NoListener bool

	// Name is the server's name, without spaces. "" means a random name. A server in a cluster
	// needs a unique name that stays the same after a restart, because the cluster places streams
	// by name.
	Name string

	// Tags holds labels of the server, such as "zone:a", that a cluster uses to place streams.
	Tags []string

	// SyncAlways makes the server sync each message to disk before it is acknowledged. Without it,
	// a message survives a crash of the process, but a power cut can lose the messages of the last
	// two minutes.
	SyncAlways bool

	// MaxPayload is the maximum size of a message in bytes, including its headers. 0 means the
	// server's default, 1 MiB.
	MaxPayload int32

	// MaxStore is the maximum total size of all streams in bytes. 0 means three quarters of the
	// disk space that is free when the server starts.
	MaxStore int64

	// MonitorPort is the TCP port, on Host, for /healthz and the server's metrics. 0 means that the
	// server does not offer them.
	MonitorPort int

	// Cluster makes the server a node of a cluster. nil means that it runs alone.
	Cluster *Cluster

	// AfterLast decides where a consumer continues if the server cannot read the consumer's state.
	// If it returns true, the consumer begins after its stream's last message. If it returns false,
	// or if AfterLast is nil, the consumer begins with the first message. If it returns an error,
	// Start fails, and the next start calls AfterLast again. AfterLast is not called in a cluster,
	// or if the stream never had a message.
	AfterLast func(stream, consumer string) (bool, error) `json:"-"`

	// Log receives the server's log lines. It may be called concurrently, must not block and must
	// not call methods of the Server. If it is nil, the lines are discarded, and nothing is written
	// to stdout or stderr.
	Log func(level slog.Level, line string) `json:"-"`
}

// Cluster describes how a node finds the other nodes.
type Cluster struct {
	Name   string   // name of the cluster, the same for every node
	Port   int      // port for the other nodes, on Options.Host; not 0
	Routes []string // host:port of every node; may include the node's own

	// Advertise is the host:port of a proxy in front of this node, through which the other nodes
	// connect. "" means that they connect directly. If Advertise is set, clients are not told about
	// the other nodes, because these may be behind proxies as well.
	Advertise string
}

// Server is a NATS server that runs in this process.
type Server struct {
	options      Options // the defaults are filled in; Port is the port in use
	lock         *flock.Flock
	url          string
	shutdownOnce sync.Once

	restartMu sync.Mutex // held by Restart and Shutdown; acquired before mu
	stopped   bool       // guarded by restartMu

	mu   sync.Mutex     // held only briefly, because clients wait for it with their own locks held
	nats *server.Server // nil while Restart replaces it, and after Restart has failed

	roomError atomic.Pointer[error] // what CheckRoom returns, set by WatchRoom
}

// errNotRunning means that Restart has stopped the server and has not started it again, either
// because the restart is still in progress or because it has failed.
var errNotRunning = errors.New("the NATS server is not running; it is being restarted")

// Start starts a server and returns once its streams have been recovered and clients can connect.
// The nodes of a cluster may not have found each other yet. After an error, nothing is running. The
// error wraps ErrLocked if another server is using the folder.
func Start(o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	lock, err := lockFolder(o.StoreDir)
	if err != nil {
		return nil, err
	}
	ns, err := startAndRepair(o)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	s := &Server{options: o, lock: lock, nats: ns}
	if addr, ok := ns.Addr().(*net.TCPAddr); ok {
		s.url = (&url.URL{
			Scheme: "nats",
			Host:   net.JoinHostPort(o.Host, strconv.Itoa(addr.Port)),
		}).String()
		s.options.Port = addr.Port
	}
	return s, nil
}

// withDefaults returns the options with all defaults filled in, or an error if they are invalid.
func (o Options) withDefaults() (Options, error) {
	if o.StoreDir == "" {
		return o, errors.New("the NATS server needs a store folder")
	}
	// Make the path absolute, so that a later chdir does not change its meaning.
	dir, err := filepath.Abs(o.StoreDir)
	if err != nil {
		return o, fmt.Errorf("store folder %s: %w", o.StoreDir, err)
	}
	o.StoreDir = dir
	if o.Host == "" {
		o.Host = "127.0.0.1"
	}
	if o.Cluster == nil {
		return o, nil
	}
	switch {
	case o.NoListener:
		return o, errors.New("a NATS server in a cluster needs a listener")
	case o.Name == "" || o.Cluster.Name == "" || o.Cluster.Port == 0:
		return o,
			errors.New("a NATS server in a cluster needs a name, the cluster's name and a " +
				"cluster port")
	}
	return o, nil
}

// lockFolder creates the folder, and locks it so that no second server can write to the same files.
// nats-server itself does not lock it.
func lockFolder(dir string) (*flock.Flock, error) {
	if err := durable.MkdirAll(dir, 0o700); err != nil {
		return nil,
			fmt.Errorf("cannot create the store folder %s: %w; choose another one", dir,
				withoutPath(err))
	}
	lock := flock.New(filepath.Join(dir, lockFile))
	got, err := lock.TryLock()
	if err != nil {
		return nil,
			fmt.Errorf("cannot write to the store folder %s: %w; make it writable or choose "+
				"another one", dir, withoutPath(err))
	}
	if !got {
		return nil,
			fmt.Errorf("the store folder %s is %w; stop that one or choose another folder", dir,
				ErrLocked)
	}
	return lock, nil
}

// withoutPath returns an error without its path, for messages that already contain the path.
func withoutPath(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}

// startAndRepair runs a server in a locked folder. If the server could not read the states of some
// consumers, startAndRepair stops it, resets these consumers and runs it again. In a cluster, it
// resets no consumers, because the other nodes have their states.
func startAndRepair(o Options) (*server.Server, error) {
	log := newLogger(o)
	ns, err := startServer(o, log)
	unreadable := log.unreadableConsumers()
	if err != nil || len(unreadable) == 0 || o.Cluster != nil {
		return ns, err
	}
	last, err := lastStreamSequences(ns, unreadable)
	ns.Shutdown()
	ns.WaitForShutdown()
	if err != nil {
		return nil, err
	}
	for i, c := range unreadable {
		if err := o.resetConsumer(c, last[i]); err != nil {
			return nil, err
		}
	}
	return startServer(o, newLogger(o))
}

func startServer(o Options, log *logger) (*server.Server, error) {
	if err := checkPorts(o); err != nil {
		return nil, err
	}
	so, err := o.natsOptions()
	if err != nil {
		return nil, err
	}
	ns, err := server.NewServer(so)
	if err != nil {
		return nil, fmt.Errorf("NATS server: %w", err)
	}

	// From here on, the server reports a fatal error to log instead of exiting the process, as its
	// default logger would.
	ns.SetLoggerV2(log, false, false, false)
	ns.Start()

	if err := awaitClusterListener(ns, o, log.firstFatalLine); err != nil {
		ns.Shutdown()
		ns.WaitForShutdown()
		return nil, err
	}
	return ns, nil
}

// checkPorts returns an error if a port is in use. The server would notice that only after
// recovering all streams.
func checkPorts(o Options) error {
	if !o.NoListener && o.Port != 0 {
		if err := checkPort("port", o.Host, o.Port); err != nil {
			return err
		}
	}
	if o.Cluster != nil {
		return checkPort("cluster port", o.Host, o.Cluster.Port)
	}
	return nil
}

// portBusyTimeout is how long a port may be in use before checkPort returns an error. The port may
// soon become free: an earlier server may be about to exit, and a forked process holds its parent's
// sockets until it has started its own program.
const portBusyTimeout = 500 * time.Millisecond

// checkPort returns an error if a port stays in use for portBusyTimeout.
func checkPort(what, host string, port int) error {
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for end := time.Now().Add(portBusyTimeout); ; <-again.C {
		//nolint:noctx // it does not block
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		switch {
		case err == nil:
			return l.Close()
		case !errors.Is(err, syscall.EADDRINUSE):
			return fmt.Errorf("the NATS server cannot use %s %d on %s: %w", what, port, host, err)
		case time.Now().After(end):
			return fmt.Errorf("%s %d of the NATS server is used by another program on %s; choose "+
				"another port or stop that program: %w",
				what, port, host, syscall.EADDRINUSE)
		}
	}
}

func (o Options) natsOptions() (*server.Options, error) {
	so := &server.Options{
		ServerName:             o.Name,
		Tags:                   o.Tags,
		Host:                   o.Host,
		Port:                   o.Port,
		DontListen:             o.NoListener,
		MaxPayload:             o.MaxPayload,
		JetStream:              true,
		StoreDir:               o.StoreDir,
		SyncAlways:             o.SyncAlways,
		JetStreamMaxStore:      o.MaxStore,
		DisableJetStreamBanner: true,
		NoSigs:                 true, // the program handles signals
		NoLog:                  true,
	}
	if o.Port == 0 {
		so.Port = server.RANDOM_PORT
	}
	if o.MonitorPort != 0 {
		so.HTTPHost, so.HTTPPort = o.Host, o.MonitorPort
	}
	if o.Cluster != nil {
		so.Cluster.Name = o.Cluster.Name
		so.Cluster.Host = o.Host
		so.Cluster.Port = o.Cluster.Port
		so.Cluster.Advertise = o.Cluster.Advertise
		so.Cluster.NoAdvertise = o.Cluster.Advertise != ""
		for _, route := range o.Cluster.Routes {
			u, err := url.Parse("nats://" + route)
			if err != nil {
				return nil, fmt.Errorf("route %q is not host:port: %w", route, err)
			}
			so.Routes = append(so.Routes, u)
		}
	}
	return so, nil
}

// awaitClusterListener waits until the server of a cluster listens for the other nodes. This
// listener is the only one that the server opens in the background. awaitClusterListener returns an
// error if the server has logged a fatal error, or if the listener does not open within
// clusterListenTimeout.
func awaitClusterListener(ns *server.Server, o Options, fatal <-chan string) error {
	failed := func(line string) error {
		return fmt.Errorf("the NATS server did not start in %s: %s", o.StoreDir, line)
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(clusterListenTimeout); ; <-tick.C {
		select {
		case line := <-fatal:
			return failed(line)
		default:
		}
		switch {
		case o.Cluster == nil || ns.ClusterAddr() != nil:
			return nil
		case time.Now().After(end):
			return failed("its cluster port did not open in " + clusterListenTimeout.String())
		}
	}
}

// ClientURL returns the clients' URL, nats://host:port, or "" if NoListener is set.
func (s *Server) ClientURL() string { return s.url }

// InProcess returns an option that connects a client in this process without using the network:
// nats.Connect("", s.InProcess()).
func (s *Server) InProcess() nats.Option { return nats.InProcessServer(s) }

// InProcessConn creates a connection for the InProcess option. While the server is being restarted,
// InProcessConn fails immediately instead of blocking the client. A client that is reconnecting
// then tries again.
func (s *Server) InProcessConn() (net.Conn, error) {
	ns := s.natsServer()
	if ns == nil {
		return nil, errNotRunning
	}
	return ns.InProcessConn()
}

// natsServer returns the current server, or nil while it is being restarted or after a restart has
// failed.
func (s *Server) natsServer() *server.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nats
}

// swapNATSServer replaces the current server, and returns the previous one. Either may be nil.
func (s *Server) swapNATSServer(ns *server.Server) (previous *server.Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	previous, s.nats = s.nats, ns
	return previous
}

// Health returns an error that says what is wrong with the server, or nil if it is healthy. If a
// file of a stream or consumer could not be written, that stream or consumer stays broken until the
// server is restarted, even after disk space has been freed.
func (s *Server) Health() error {
	ns := s.natsServer()
	if ns == nil {
		return errNotRunning
	}
	if health := ns.Healthz(nil); health.Status != "ok" {
		return errors.New(health.Error)
	}
	return nil
}

// Restart stops the server and starts it again on the same port. Clients reconnect, including
// clients that use InProcess. If Restart returns an error, the server is no longer running. After
// Shutdown, Restart does nothing.
func (s *Server) Restart() error {
	s.restartMu.Lock()
	defer s.restartMu.Unlock()
	if s.stopped {
		return nil
	}
	if previous := s.swapNATSServer(nil); previous != nil {
		previous.Shutdown()
		previous.WaitForShutdown()
	}
	ns, err := startAndRepair(s.options)
	if err != nil {
		return err
	}
	s.swapNATSServer(ns)
	return nil
}

// Shutdown stops the server, waits until everything has been written, and unlocks the folder.
// Concurrent and later calls wait for the first one.
func (s *Server) Shutdown() {
	s.shutdownOnce.Do(func() {
		s.restartMu.Lock()
		defer s.restartMu.Unlock()
		s.stopped = true
		if ns := s.natsServer(); ns != nil {
			ns.Shutdown()
			ns.WaitForShutdown()
		}
		_ = s.lock.Close() // if this fails, the lock is released when the process exits
	})
}

// logger passes the server's log lines to Options.Log. It also records the first fatal line, and
// the consumers whose states could not be read.
type logger struct {
	hook           func(slog.Level, string)
	firstFatalLine chan string // capacity 1

	mu         sync.Mutex
	unreadable []unreadableConsumer
}

func newLogger(o Options) *logger {
	return &logger{hook: o.Log, firstFatalLine: make(chan string, 1)}
}

func (l *logger) unreadableConsumers() []unreadableConsumer {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.unreadable)
}

func (l *logger) log(level slog.Level, format string, args []any) {
	if l.hook != nil {
		l.hook(level, fmt.Sprintf(format, args...))
	}
}

func (l *logger) Fatalf(format string, args ...any) {
	select {
	case l.firstFatalLine <- fmt.Sprintf(format, args...):
	default:
	}
	l.log(slog.LevelError, format, args)
}

func (l *logger) Errorf(format string, args ...any) { l.log(slog.LevelError, format, args) }
func (l *logger) Warnf(format string, args ...any) {
	if c, ok := parseUnreadableConsumer(args); ok {
		l.mu.Lock()
		l.unreadable = append(l.unreadable, c)
		l.mu.Unlock()
	}
	l.log(slog.LevelWarn, format, args)
}

func (l *logger) Noticef(format string, args ...any) { l.log(slog.LevelInfo, format, args) }
func (l *logger) Debugf(format string, args ...any)  { l.log(slog.LevelDebug, format, args) }
func (l *logger) Tracef(format string, args ...any)  { l.log(slog.LevelDebug, format, args) }
