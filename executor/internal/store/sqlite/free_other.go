//go:build !linux && !darwin

package sqlite

// freeBytes returns -1, because the free space of a folder cannot be determined on this system.
func freeBytes(string) int64 { return -1 }
