//go:build !unix

package target

import (
	"os"
	"os/exec"
)

// setOwnProcessGroup does nothing: this system has no process groups.
func setOwnProcessGroup(*exec.Cmd) {}

// terminate kills the program: this system has no SIGTERM.
func terminate(leader *os.Process) { _ = leader.Kill() }

// kill kills only the program, not its children.
func kill(leader *os.Process) { _ = leader.Kill() }
