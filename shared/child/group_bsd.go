//go:build unix && !linux

package child

import "syscall"

// sysProcAttr makes a child the leader of a new process group, which the terminal's Ctrl-C does not
// reach. The child does not end when this process is killed; only Linux supports that.
func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
