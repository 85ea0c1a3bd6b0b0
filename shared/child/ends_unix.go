//go:build unix && !linux

package child

import "syscall"

// endsWithParent shields a child from the terminal's Ctrl-C. Only on Linux does the child also end
// when this process is killed.
func endsWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
