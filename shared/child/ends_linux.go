package child

import "syscall"

// endsWithParent returns attributes that make a child end when this process ends, even by SIGKILL,
// and that keep the terminal's Ctrl-C from reaching it.
func endsWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
