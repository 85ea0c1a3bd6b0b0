//go:build !linux

package pgtest

import (
	"os/exec"
	"syscall"
)

const immediateShutdown = syscall.SIGQUIT

// runAsServerUser does nothing: on other systems, tests do not run as root.
func runAsServerUser(*exec.Cmd) error { return nil }

func chownToServerUser(string) error { return nil }
