package target

import (
	"os/exec"
	"syscall"
)

// setOwnProcessGroup makes the program the leader of a new process group, which the terminal's
// signals do not reach. The kernel kills the program when this process exits.
func setOwnProcessGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
