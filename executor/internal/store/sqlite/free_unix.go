//go:build linux || darwin

package sqlite

import "syscall"

// freeBytes returns how many bytes this process can still store in a folder, or -1 if that cannot
// be determined.
func freeBytes(folder string) int64 {
	var disk syscall.Statfs_t
	if err := syscall.Statfs(folder, &disk); err != nil {
		return -1
	}
	return int64(disk.Bavail) * int64(disk.Bsize) //nolint:gosec,unconvert // types differ by system
}
