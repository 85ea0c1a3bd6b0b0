//go:build !linux

package pgtest

import (
	"os/exec"
	"syscall"
)

const immediateShutdown = syscall.SIGQUIT

// asServer does nothing: on other systems, tests do not run as root.
func asServer(*exec.Cmd) error { return nil }

func giveToServer(string) error { return nil }
