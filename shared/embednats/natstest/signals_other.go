//go:build !unix

package natstest

import "syscall"

// No such signals here: to send one fails, and Pause says so.
const (
	pauseSignal  = syscall.Signal(0)
	resumeSignal = syscall.Signal(0)
)
