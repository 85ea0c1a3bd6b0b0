//go:build !unix

package child

import "syscall"

// endsWithParent is for Unix systems.
func endsWithParent() *syscall.SysProcAttr { return nil }
