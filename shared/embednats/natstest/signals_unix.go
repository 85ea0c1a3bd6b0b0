//go:build unix

package natstest

import (
	"errors"
	"os"
	"syscall"
)

// pause sends SIGSTOP to a server process and waits until all of its threads have stopped, which
// takes a moment.
func pause(p *process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(p.PID(), &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return err
		case !status.Stopped():
			return os.ErrProcessDone
		default:
			return nil
		}
	}
}

func resume(p *process) error { return p.Signal(syscall.SIGCONT) }
