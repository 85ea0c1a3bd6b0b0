package pgtest

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/hookstart/hookstart/shared/retry"
)

// NewServer starts a server for a program that is not a test. The program must eventually call
// Remove.
func NewServer(settings ...string) (*Server, error) { return NewServerIn("", settings...) }

// NewServerIn is like NewServer, but keeps the server's data in a new folder in parent.
func NewServerIn(parent string, settings ...string) (*Server, error) {
	programs, err := findPrograms()
	if err != nil {
		return nil, fmt.Errorf("%w: install it, initdb and postgres are needed", err)
	}
	return newServer(programs, parent, settings)
}

// Kill kills the server's main process with SIGKILL, as the kernel's out-of-memory killer does. The
// other server processes notice and exit.
func (s *Server) Kill() error { return s.stopWithSignal(os.Kill) }

// Running reports whether the server is still running. It may have exited by itself, as PostgreSQL
// does when it cannot write.
func (s *Server) Running() bool {
	if s.process == nil {
		return false
	}
	select {
	case <-s.process.Exited():
		s.process = nil
		return false
	default:
		return true
	}
}

// Query runs statements one after another on a separate connection. It returns the first value of
// the last statement as text, or "" if there is none.
func (s *Server) Query(ctx context.Context, statements ...string) (value string, err error) {
	return s.query(ctx, "postgres", statements)
}

func (s *Server) query(
	ctx context.Context, database string, statements []string,
) (value string, err error) {
	conn, err := pgx.Connect(ctx, s.url(database))
	if err != nil {
		return "", fmt.Errorf("pgtest: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for _, statement := range statements {
		results, err := conn.PgConn().Exec(ctx, statement).ReadAll()
		if err != nil {
			return "", fmt.Errorf("pgtest: %s: %w", statement, err)
		}
		value = ""
		if last := results[len(results)-1]; len(last.Rows) > 0 {
			value = string(last.Rows[0][0])
		}
	}
	return value, nil
}

// Restart starts a killed server and returns when it accepts connections. It first waits until the
// last process of the killed server has exited.
func (s *Server) Restart(ctx context.Context) (err error) {
	retry.Until(ctx, 100*time.Millisecond, func() bool {
		err = s.start(ctx)
		// If the server has exited, process is nil. Try again then: the server refuses to start
		// while a process of the killed server is still running.
		return err == nil || s.process != nil
	})
	return err
}
