package child

import "syscall"

// endsWithParent makes a child end with this process even if that is killed, and keeps the terminal's Ctrl-C from it.
func endsWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
