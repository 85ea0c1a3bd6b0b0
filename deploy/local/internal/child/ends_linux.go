package child

import "syscall"

// EndsWithParent makes a child end with this process even if that is killed, and keeps
// the terminal's Ctrl-C from it: who ends it is decided here.
func EndsWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
