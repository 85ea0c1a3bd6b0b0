//go:build unix

package natstest

import "syscall"

const (
	pauseSignal  = syscall.SIGSTOP
	resumeSignal = syscall.SIGCONT
)
