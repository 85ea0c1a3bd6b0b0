package child

import "syscall"

// sysProcAttr returns attributes that make a child the leader of a new process group, so that the
// terminal's Ctrl-C does not reach it. They also make the kernel kill the child when this process
// ends, even by SIGKILL.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
