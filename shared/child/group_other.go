//go:build !unix

package child

import (
	"os"
	"syscall"
)

// sysProcAttr returns no attributes: on systems other than Unix, a child has no process group of
// its own and does not end with its parent.
func sysProcAttr() *syscall.SysProcAttr { return nil }

// signalGroup kills the leader alone: this system has neither process groups nor SIGTERM.
func signalGroup(leader *os.Process, _ syscall.Signal) { _ = leader.Kill() }
