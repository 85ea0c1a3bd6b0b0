//go:build unix && !linux

package child

import "syscall"

// sysProcAttr returns attributes that make a child the leader of a new process group, so that the
// terminal's Ctrl-C does not reach it. The child does not end when this process is killed, because
// only Linux supports that.
func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
