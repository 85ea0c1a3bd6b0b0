package pgtest

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/hookstart/hookstart/shared/retry"
)

// Create starts a server for a program that is not a test. Remove ends it.
func Create(settings ...string) (*Server, error) { return CreateIn("", settings...) }

// CreateIn does the same as Create, with the data in a new folder in parent.
func CreateIn(parent string, settings ...string) (*Server, error) {
	programs, err := find()
	if err != nil {
		return nil, fmt.Errorf("%w: install it, initdb and postgres are needed", err)
	}
	return create(programs, parent, settings)
}

// Kill kills the server's first process with SIGKILL, as the kernel's out-of-memory killer does.
// The other processes notice that, and end.
func (s *Server) Kill() error { return s.end(os.Kill) }

// Running reports whether the server runs: a server that cannot write ends by itself.
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

// Query runs statements one after another on a connection of their own, and returns the first value
// of the last statement as text, or "" if it has none.
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

// Restart starts a server that was killed, and returns when it answers. It waits until the last
// process of the killed server has ended.
func (s *Server) Restart(ctx context.Context) (err error) {
	retry.Until(ctx, 100*time.Millisecond, func() bool {
		err = s.start(ctx)
		// The server runs and does not answer yet; a server that refused to start has ended.
		return err == nil || s.process != nil
	})
	return err
}
