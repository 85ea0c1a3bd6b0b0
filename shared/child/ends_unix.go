//go:build unix && !linux

package child

import "syscall"

// endsWithParent keeps the terminal's Ctrl-C from a child. Only on Linux does a child end when this process is killed.
func endsWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
