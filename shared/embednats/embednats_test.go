package embednats_test

import (
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/embednats"
)

func start(t *testing.T, o embednats.Options) *embednats.Server {
	t.Helper()
	s, err := embednats.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	return s
}

// refused checks that Start fails with the options o. The error must be a single line, contain all
// of the words, and wrap want unless want is nil.
func refused(t *testing.T, o embednats.Options, want error, words ...string) {
	t.Helper()
	s, err := embednats.Start(o)
	if err == nil {
		s.Shutdown()
		t.Fatal("started")
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than one line: %q", err)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q is not in: %s", word, err)
		}
	}
	if want != nil && !errors.Is(err, want) {
		t.Errorf("not %q: %s", want, err)
	}
}

func TestWithoutListener(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "store")
	s := start(t, embednats.Options{StoreDir: dir, NoListener: true})
	if url := s.ClientURL(); url != "" {
		t.Errorf("ClientURL: %s", url)
	}
	if info, err := os.Stat(dir); err != nil {
		t.Error(err)
	} else if info.Mode().Perm() != 0o700 {
		t.Errorf("the folder has mode %o", info.Mode().Perm())
	}

	nc, err := nats.Connect("", s.InProcess())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S"}); err != nil {
		t.Fatal(err)
	}
	if ack, err := js.Publish(t.Context(), "S", nil); err != nil || ack.Sequence != 1 {
		t.Errorf("publish: %v, %v", ack, err)
	}
}

func TestLimits(t *testing.T) {
	s := start(t, embednats.Options{
		StoreDir:   t.TempDir(),
		Name:       "one",
		MaxPayload: 100,
		MaxStore:   1000,
		SyncAlways: true,
	})
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if nc.MaxPayload() != 100 || nc.ConnectedServerName() != "one" {
		t.Errorf("max payload %d, name %s", nc.MaxPayload(), nc.ConnectedServerName())
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(),
		jetstream.StreamConfig{Name: "S", MaxBytes: 1001}); err == nil {
		t.Error("a stream larger than MaxStore was created")
	}
}

// After a restart, a client that uses InProcess and a client that uses TCP both reconnect, and
// stored messages are still there.
func TestRestart(t *testing.T) {
	s := start(t, embednats.Options{StoreDir: t.TempDir()})
	again := nats.ReconnectWait(10 * time.Millisecond)
	inProcess, err := nats.Connect("", s.InProcess(), again, nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	defer inProcess.Close()
	overTCP, err := nats.Connect(s.ClientURL(), again, nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	defer overTCP.Close()
	js, err := jetstream.New(inProcess)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S"}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "S", nil); err != nil {
		t.Fatal(err)
	}
	back := map[*nats.Conn]chan nats.Status{
		inProcess: inProcess.StatusChanged(nats.CONNECTED),
		overTCP:   overTCP.StatusChanged(nats.CONNECTED),
	}
	if err := errors.Join(s.Health(), s.Restart()); err != nil {
		t.Fatal(err)
	}
	for nc, connected := range back {
		<-connected
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		if stream, err := js.Stream(t.Context(), "S"); err != nil ||
			stream.CachedInfo().State.Msgs != 1 {
			t.Errorf("after the restart: %v, %v", stream, err)
		}
	}
	if err := s.Health(); err != nil {
		t.Errorf("health: %v", err)
	}
	s.Shutdown()
	if err := s.Restart(); err != nil {
		t.Errorf("after the end: %v", err)
	}
}

// A restart takes a long time if the server has many messages. Until the restart has finished,
// InProcessConn and Health must return an error immediately. A NATS client holds its locks while it
// connects, so if InProcessConn waited, all calls to the client would block as well.
func TestClientsDoNotWaitForARestart(t *testing.T) {
	var restarting atomic.Bool
	starting, goOn := make(chan struct{}), make(chan struct{})
	s := start(t, embednats.Options{
		StoreDir: t.TempDir(), NoListener: true,
		Log: func(_ slog.Level, line string) {
			if strings.Contains(line, "Starting nats-server") && restarting.Load() {
				close(starting)
				<-goOn
			}
		},
	})
	restarting.Store(true)
	restarted := make(chan error, 1)
	go func() { restarted <- s.Restart() }()
	<-starting
	answered := make(chan error, 2)
	go func() {
		_, err := s.InProcessConn()
		answered <- err
		answered <- s.Health()
	}()
	for range 2 {
		select {
		case err := <-answered:
			if err == nil {
				t.Error("no error while the server is being restarted")
			}
		case <-time.After(10 * time.Second):
			t.Error("a client waits for the restart")
		}
	}
	close(goOn)
	if err := <-restarted; err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect("", s.InProcess())
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
}

func TestFolderIsLocked(t *testing.T) {
	o := embednats.Options{StoreDir: t.TempDir(), NoListener: true}
	first := start(t, o)
	refused(t, o, embednats.ErrLocked, o.StoreDir, "another hookstart process")
	first.Shutdown()
	first.Shutdown()
	start(t, o)
}

func TestFolderCannotBeUsed(t *testing.T) {
	refused(t, embednats.Options{}, nil, "store folder")

	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, embednats.Options{StoreDir: file}, nil, file, "not a directory")
	below := filepath.Join(file, "store")
	refused(t, embednats.Options{StoreDir: below}, nil, below, "not a directory")

	// If the store folder contains a file named jetstream where nats-server expects a folder,
	// nats-server itself fails, and logs a fatal error.
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "jetstream"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var logged atomic.Bool
	o := embednats.Options{StoreDir: dir, Log: func(level slog.Level, line string) {
		if level == slog.LevelError && strings.Contains(line, "JetStream") {
			logged.Store(true)
		}
	}}
	refused(t, o, nil, dir, "not a directory")
	if !logged.Load() {
		t.Error("the failure was not logged")
	}
	if err := os.Remove(filepath.Join(dir, "jetstream")); err != nil {
		t.Fatal(err)
	}
	start(t, o) // the failed start has released the lock of the folder
}

func TestFolderIsReadOnly(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may write everywhere")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	refused(t, embednats.Options{StoreDir: dir}, fs.ErrPermission, dir, "permission denied")
}

func TestPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, text, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()

	refused(t, embednats.Options{StoreDir: dir, Port: port}, syscall.EADDRINUSE,
		"port "+text, "127.0.0.1", "used by another program")
	refused(t, embednats.Options{
		StoreDir: dir,
		Name:     "n",
		Cluster:  &embednats.Cluster{Name: "c", Port: port},
	}, syscall.EADDRINUSE,
		"cluster port "+text, "used by another program")
	refused(t, embednats.Options{StoreDir: dir, Host: "192.0.2.1", Port: port}, nil, "192.0.2.1",
		"cannot use port")
	// If the options contain no port, checkPorts checks nothing. Then nats-server itself fails to
	// listen, and Start returns its error.
	refused(t, embednats.Options{StoreDir: dir, Host: "192.0.2.1"}, nil, dir, "192.0.2.1")
	start(t, embednats.Options{StoreDir: dir})
}

// A server starts even if its port is still in use for a moment, for example by a server that is
// just shutting down.
func TestPortThatIsInUseForAMoment(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatal(l.Addr())
	}
	time.AfterFunc(100*time.Millisecond, func() { _ = l.Close() })
	s, err := embednats.Start(embednats.Options{StoreDir: t.TempDir(), Port: addr.Port})
	if err != nil {
		t.Fatal(err)
	}
	s.Shutdown()
}

func TestClusterOptions(t *testing.T) {
	dir := t.TempDir()
	cluster := &embednats.Cluster{Name: "c", Port: 1}
	refused(t, embednats.Options{StoreDir: dir, Cluster: cluster}, nil, "needs a name")
	refused(t, embednats.Options{StoreDir: dir, Name: "n", NoListener: true, Cluster: cluster}, nil,
		"needs a listener")
}
