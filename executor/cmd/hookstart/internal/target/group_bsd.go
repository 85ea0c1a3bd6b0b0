//go:build unix && !linux

package target

import (
	"os/exec"
	"syscall"
)

// setOwnProcessGroup makes the program the leader of a new process group, which the terminal's
// signals do not reach.
func setOwnProcessGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
