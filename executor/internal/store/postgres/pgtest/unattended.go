package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// Create starts a server for a program that is no test. Remove ends it.
func Create(settings ...string) (*Server, error) {
	programs, err := find()
	if err != nil {
		return nil, fmt.Errorf("%w: install it, initdb and postgres are needed", err)
	}
	return create(programs, settings)
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
