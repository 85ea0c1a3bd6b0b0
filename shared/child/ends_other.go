//go:build !unix

package child

import "syscall"

// endsWithParent returns no attributes: a child does not end with its parent on systems other than
// Unix.
func endsWithParent() *syscall.SysProcAttr { return nil }
