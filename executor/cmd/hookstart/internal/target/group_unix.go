//go:build unix

package target

import (
	"os"
	"syscall"
)

// terminate asks the whole group to end. Errors mean that nothing is left of it.
func terminate(leader *os.Process) { _ = syscall.Kill(-leader.Pid, syscall.SIGTERM) }

// kill ends what is left of the group.
func kill(leader *os.Process) { _ = syscall.Kill(-leader.Pid, syscall.SIGKILL) }
