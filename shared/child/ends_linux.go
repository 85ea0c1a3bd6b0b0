package child

import "syscall"

// endsWithParent makes a child end when this process ends, even by SIGKILL, and shields it from the
// terminal's Ctrl-C.
func endsWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
