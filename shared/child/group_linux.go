package child

import "syscall"

// sysProcAttr makes a child the leader of a new process group, which the terminal's Ctrl-C does not
// reach. The kernel kills the child when this process ends, even by SIGKILL.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
