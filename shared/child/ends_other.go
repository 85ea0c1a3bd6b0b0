//go:build !unix

package child

import "syscall"

// endsWithParent does nothing on systems other than Unix.
func endsWithParent() *syscall.SysProcAttr { return nil }
