package dist_test

import "syscall"

// umask sets the umask of the process, and returns the one before.
func umask(mask int) int { return syscall.Umask(mask) }
