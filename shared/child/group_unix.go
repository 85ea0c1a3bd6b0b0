//go:build unix

package child

import (
	"os"
	"syscall"
)

// signalGroup signals the processes of the group that leader leads. It ignores the error, which
// only means that the group has no processes left.
func signalGroup(leader *os.Process, s syscall.Signal) { _ = syscall.Kill(-leader.Pid, s) }
