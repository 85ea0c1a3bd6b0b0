//go:build unix && !linux

package child

import "syscall"

// endsWithParent keeps the terminal's Ctrl-C from a child. Elsewhere than on Linux a child
// outlives this process if that is killed with SIGKILL.
func endsWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
