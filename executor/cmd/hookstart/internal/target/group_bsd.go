//go:build unix && !linux

package target

import (
	"os/exec"
	"syscall"
)

// ownGroup makes the program the leader of a group, which no signal of a terminal reaches.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
