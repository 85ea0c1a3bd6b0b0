//go:build unix && !linux

package child

import "syscall"

// endsWithParent returns attributes that keep the terminal's Ctrl-C from reaching a child. The
// child does not end when this process is killed; only Linux supports that.
func endsWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
