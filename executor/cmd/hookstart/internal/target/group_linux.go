package target

import (
	"os/exec"
	"syscall"
)

// ownGroup makes the program the leader of a group, which no signal of a terminal reaches, and ends with this process.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
