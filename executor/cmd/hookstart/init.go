package main

import (
	"os"
	"os/signal"
	"syscall"
)

// first runs the program once more, as its child, and returns that one's exit code. It is for the
// first process of a container: the system gives it every process whose parent has ended, and what
// it does not wait for stays as a zombie. A program that os/exec waits for must not be waited for
// here, so that the two are apart.
func first() int {
	// Before the child exists, so that no signal ends only this process.
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT,
		syscall.SIGUSR1, syscall.SIGUSR2)
	terminal, noTerminal := os.Open("/dev/tty")
	if noTerminal == nil {
		_ = terminal.Close()
	}
	path, err := os.Executable()
	if err != nil {
		return failed(err)
	}
	//nolint:gosec // this program itself
	child, err := os.StartProcess(path, os.Args, &os.ProcAttr{
		Env:   os.Environ(),
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
	})
	if err != nil {
		return failed(err)
	}
	go func() {
		for s := range signals {
			// A terminal sends what is typed there to the child, too, for which a second signal has
			// a meaning of its own.
			if noTerminal != nil ||
				s != syscall.SIGINT && s != syscall.SIGQUIT && s != syscall.SIGHUP {
				_ = child.Signal(s)
			}
		}
	}()
	for {
		var status syscall.WaitStatus
		switch pid, err := syscall.Wait4(-1, &status, 0, nil); {
		case err == syscall.EINTR:
		case err != nil:
			return failed(err)
		case pid == child.Pid && status.Signaled():
			return 128 + int(status.Signal())
		case pid == child.Pid && status.Exited():
			return status.ExitStatus()
		}
	}
}

func failed(err error) int {
	_, _ = os.Stderr.WriteString("hookstart: as the first process of a container: " + err.Error() +
		"\n")
	return 1
}
