//go:build !linux && !darwin

package sqlite

// freeBytes returns -1: the number of bytes that can still be stored in a folder is not known on
// this system.
func freeBytes(string) int64 { return -1 }
