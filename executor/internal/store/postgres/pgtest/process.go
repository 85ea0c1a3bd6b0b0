package pgtest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// process is a running server.
type process struct {
	handle *os.Process
	ended  chan struct{} // closed when it is gone; then err is set
	err    error
}

// launch starts a command and keeps the thread that did so: Linux ends the server when
// that thread ends (see asServer), which is when this process does.
func launch(command *exec.Cmd) (*process, error) {
	p := &process{ended: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := command.Start()
		p.handle = command.Process
		started <- err
		if err == nil {
			p.err = command.Wait()
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// signalStop asks for an immediate shutdown.
func (p *process) signalStop() error {
	if err := p.handle.Signal(immediateShutdown); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// find is the folder of initdb and postgres: in PATH, or where Debian puts them.
func find() (folder string, err error) {
	if initdb, err := exec.LookPath("initdb"); err == nil {
		// Next to initdb there may be no postgres when it is a wrapper's link.
		if initdb, err = filepath.EvalSymlinks(initdb); err == nil {
			return filepath.Dir(initdb), nil
		}
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		return "", errors.New("PostgreSQL is not installed (no initdb in PATH or /usr/lib/postgresql/*/bin)")
	}
	return filepath.Dir(found[len(found)-1]), nil
}
