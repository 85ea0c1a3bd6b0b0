package dist_test

import "syscall"

// umask sets the umask of the process, and returns the previous one.
func umask(mask int) int { return syscall.Umask(mask) }
