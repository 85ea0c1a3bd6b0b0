package target

import (
	"os/exec"
	"syscall"
)

// ownGroup makes the program the leader of a process group, which the terminal's signals do not
// reach. The program ends with this process.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
