//go:build unix

package target

import (
	"os"
	"syscall"
)

// terminate sends SIGTERM to the whole group. An error means that the group has no processes any
// more.
func terminate(leader *os.Process) { _ = syscall.Kill(-leader.Pid, syscall.SIGTERM) }

// kill kills the rest of the group.
func kill(leader *os.Process) { _ = syscall.Kill(-leader.Pid, syscall.SIGKILL) }
