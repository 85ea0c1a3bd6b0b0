package main

import (
	"os"
	"os/signal"
	"syscall"
)

// first runs the program again as a child process, and returns the exit code of the child. It is
// for the first process of a container: the system makes it the parent of every process whose
// parent has ended, and such a process stays as a zombie until it is waited for. The child starts
// programs with os/exec, which waits for them; a process that waits for every child must not
// interfere with that, so this is done in two processes.
func first() int {
	// This comes before the start of the child, so that no signal ends only this process.
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
