package target

import (
	"os/exec"
	"syscall"
)

// ownGroup makes the program the leader of a new process group, which the terminal's signals do not
// reach. The kernel kills the program when this process exits.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
