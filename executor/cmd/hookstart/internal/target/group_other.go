//go:build !unix

package target

import (
	"os"
	"os/exec"
)

// ownGroup does nothing: this system has no process groups.
func ownGroup(*exec.Cmd) {}

// terminate can only kill here.
func terminate(leader *os.Process) { _ = leader.Kill() }

// kill ends the program alone.
func kill(leader *os.Process) { _ = leader.Kill() }
