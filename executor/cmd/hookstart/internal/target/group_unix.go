//go:build unix

package target

import (
	"os"
	"syscall"
)

// terminate sends SIGTERM to the whole process group. It ignores the error, which only means that
// the group has no processes left.
func terminate(leader *os.Process) { _ = syscall.Kill(-leader.Pid, syscall.SIGTERM) }

// kill kills the remaining processes of the group.
func kill(leader *os.Process) { _ = syscall.Kill(-leader.Pid, syscall.SIGKILL) }
