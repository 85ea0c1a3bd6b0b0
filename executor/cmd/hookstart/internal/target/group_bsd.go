//go:build unix && !linux

package target

import (
	"os/exec"
	"syscall"
)

// ownGroup makes the program the leader of a new process group, which the terminal's signals do not
// reach.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
