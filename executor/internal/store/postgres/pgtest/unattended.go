package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
)

// Create starts a server for a program that is no test. Remove ends it.
func Create(settings ...string) (*Server, error) { return CreateIn("", settings...) }

// CreateIn is Create, with the data in a new folder in parent.
func CreateIn(parent string, settings ...string) (*Server, error) {
	programs, err := find()
	if err != nil {
		return nil, fmt.Errorf("%w: install it, initdb and postgres are needed", err)
	}
	return create(programs, parent, settings)
}

// Remove stops the server and deletes its folder.
func (s *Server) Remove() error { return s.remove() }

// Kill ends the server's first process with SIGKILL, as the kernel's memory killer does.
// The others notice and end by themselves.
func (s *Server) Kill() error {
	if s.process == nil {
		return nil
	}
	if err := s.process.handle.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return s.failure("cannot kill the server", err)
	}
	<-s.process.ended
	s.process = nil
	return nil
}

// Running says whether the server is there: one that cannot write ends by itself.
func (s *Server) Running() bool {
	if s.process == nil {
		return false
	}
	select {
	case <-s.process.ended:
		s.process = nil
		return false
	default:
		return true
	}
}

// Query runs statements one after another on a connection of their own, and returns what
// the last one has in its first row and column, as text: "" when it has none.
func (s *Server) Query(ctx context.Context, statements ...string) (value string, err error) {
	conn, err := pgx.Connect(ctx, s.url("postgres"))
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

// Restart starts a server that was killed. It returns when the server answers: not
// before the last process of the one that was killed has let go of the data.
func (s *Server) Restart(ctx context.Context) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := s.start(ctx)
		if err == nil {
			return nil
		}
		if s.process != nil { // it runs and does not answer; a server that refused to start is gone
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}
