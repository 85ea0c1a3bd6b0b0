package main

import (
	"os"
	"os/signal"
	"syscall"
)

// runAsInit runs the program again as a child process and returns the child's exit code. Use it if
// this process is the first one of a container. The kernel makes the first process the parent of
// every orphaned process, and an orphan that exits remains a zombie until its parent waits for it.
// So runAsInit waits for every process. The child cannot do that, because it would interfere with
// os/exec, which itself waits for the programs that the child starts.
func runAsInit() int {
	// Register before the child starts. Otherwise a signal could terminate this process but not the
	// child.
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT,
		syscall.SIGUSR1, syscall.SIGUSR2)
	terminal, noTerminal := os.Open("/dev/tty")
	if noTerminal == nil {
		_ = terminal.Close()
	}
	path, err := os.Executable()
	if err != nil {
		return printInitError(err)
	}
	//nolint:gosec // this program itself
	child, err := os.StartProcess(path, os.Args, &os.ProcAttr{
		Env:   os.Environ(),
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
	})
	if err != nil {
		return printInitError(err)
	}
	go func() {
		for s := range signals {
			// A terminal delivers SIGINT, SIGQUIT and SIGHUP to the child as well. Do not forward
			// these signals, because the child would receive each of them twice, and treats a
			// second one differently from the first: a second SIGINT terminates it immediately.
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
			return printInitError(err)
		case pid == child.Pid && status.Signaled():
			return 128 + int(status.Signal())
		case pid == child.Pid && status.Exited():
			return status.ExitStatus()
		}
	}
}

func printInitError(err error) int {
	_, _ = os.Stderr.WriteString("hookstart: as the first process of a container: " + err.Error() +
		"\n")
	return 1
}
