package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/hookstart/hookstart/shared/child"
)

// startTimeout is the maximum time that a server may take to accept connections or to catch up.
const startTimeout = 60 * time.Second

// Server is a PostgreSQL server that can be stopped and started again.
type Server struct {
	programsFolder string
	folder         string // contains the data, the socket and the log
	settings       []string
	process        *child.Process // nil while it is stopped
}

// StartServer starts a server for one test, and stops it when the test ends. settings are
// PostgreSQL settings, such as "fsync=on" (fsync is off by default).
func StartServer(t testing.TB, settings ...string) *Server {
	t.Helper()
	s, err := newServer(programsFolder(t), "", settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Remove(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// URL returns the URL of the server's database, which stays the same when the server is restarted.
func (s *Server) URL() string { return s.url("postgres") }

// Stop stops the server immediately, as in a crash, and returns when it has exited.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	if err := s.stopWithSignal(immediateShutdown); err != nil {
		t.Fatal(err)
	}
}

// Start starts a stopped server and returns when it accepts connections.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// url returns the URL of a database. The URL names the server's socket, because another process
// could take a port before the server listens on it.
func (s *Server) url(database string) string {
	u := url.URL{Scheme: "postgres", User: url.User("postgres"), Path: "/" + database}
	u.RawQuery = url.Values{"host": {s.folder}}.Encode()
	return u.String()
}

// Socket returns the path of the Unix socket that the server listens on.
func (s *Server) Socket() string { return filepath.Join(s.folder, ".s.PGSQL.5432") }

func (s *Server) dataFolder() string { return filepath.Join(s.folder, "data") }
func (s *Server) logPath() string    { return filepath.Join(s.folder, "log") }

// newServer creates and starts a server in a new folder inside parent. If parent is "", it uses
// the folder for temporary files.
func newServer(programs, parent string, settings []string) (*Server, error) {
	// Do not use t.TempDir: its paths may exceed the 107 bytes allowed for a socket's path.
	folder, err := os.MkdirTemp(parent, "hookstart-pg-")
	if err != nil {
		return nil, err
	}
	s := &Server{programsFolder: programs, folder: folder, settings: settings}
	if err := s.initialise(); err != nil {
		return nil, errors.Join(err, s.Remove())
	}
	if err := s.start(context.Background()); err != nil {
		return nil, errors.Join(err, s.Remove())
	}
	return s, nil
}

func (s *Server) initialise() error {
	if err := chownToServerUser(s.folder); err != nil {
		return err
	}
	//nolint:noctx // it ends by itself
	command := exec.Command(filepath.Join(s.programsFolder, "initdb"),
		"--pgdata", s.dataFolder(), "--username=postgres", "--auth=trust", "--encoding=UTF8",
		"--locale=C", "--no-sync", "--no-instructions") // #nosec G204 -- found on this machine
	command.Dir = s.folder
	if err := runAsServerUser(command); err != nil {
		return err
	}
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("pgtest: initdb: %w\n%s", err, output)
	}
	return nil
}

func (s *Server) start(ctx context.Context) error {
	if s.process != nil {
		return errors.New("pgtest: the server is running")
	}
	args := []string{"-D", s.dataFolder(), "-k", s.folder}
	for _, setting := range append([]string{
		"listen_addresses=", "fsync=off", "full_page_writes=off", "shared_buffers=64MB",
	}, s.settings...) {
		args = append(args, "-c", setting)
	}
	// #nosec G304 -- in our own folder.
	log, err := os.OpenFile(s.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	// Close the log in this process only: the server process has its own copy of the file
	// descriptor.
	defer func() { _ = log.Close() }()
	//nolint:gosec,noctx // found on this machine; stop ends it
	command := exec.Command(filepath.Join(s.programsFolder, "postgres"), args...)
	command.Dir, command.Stdout, command.Stderr = s.folder, log, log
	if err := runAsServerUser(command); err != nil {
		return err
	}
	if s.process, err = child.Start(command); err != nil {
		return err
	}
	return s.waitUntilReady(ctx)
}

func (s *Server) waitUntilReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		conn, err := pgx.Connect(ctx, s.url("postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-s.process.Exited():
			err := errors.New(s.process.State().String())
			s.process = nil
			return s.errorWithLog("the server ended", err)
		case <-ctx.Done():
			return s.errorWithLog("the server does not answer", err)
		case <-again.C:
		}
	}
}

// stopWithSignal stops the server with a signal, if it is running, and waits until it has exited.
func (s *Server) stopWithSignal(signal os.Signal) error {
	if s.process == nil {
		return nil
	}
	if err := s.process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return s.errorWithLog("cannot end the server", err)
	}
	<-s.process.Exited()
	s.process = nil
	return nil
}

// Remove stops the server and deletes its folder.
func (s *Server) Remove() error {
	return errors.Join(s.stopWithSignal(immediateShutdown), os.RemoveAll(s.folder))
}

// errorWithLog returns an error that includes the last lines of the server's log.
func (s *Server) errorWithLog(what string, err error) error {
	text, readErr := os.ReadFile(s.logPath())
	if readErr != nil {
		return fmt.Errorf("pgtest: %s: %w", what, err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return fmt.Errorf("pgtest: %s: %w\n%s", what, err,
		strings.Join(lines[max(0, len(lines)-20):], "\n"))
}
