//go:build !linux

package pgtest

import (
	"os/exec"
	"syscall"
)

const immediateShutdown = syscall.SIGQUIT

// runAsServerUser does nothing, because tests do not run as root on this system.
func runAsServerUser(*exec.Cmd) error { return nil }

func chownToServerUser(string) error { return nil }
