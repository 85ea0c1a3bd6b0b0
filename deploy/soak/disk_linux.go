package soak

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// diskSize is the size of a disk in bytes. It is only an upper bound: a disk uses only as much
// memory as the data stored on it.
const diskSize = 16 << 30

// disk is a separate file system, mounted at folder, that faults can fill up.
type disk struct{ folder string }

// newDisk mounts a new, empty disk. It needs root privileges.
func newDisk() (*disk, error) {
	folder, err := os.MkdirTemp("", "hookstart-disk-")
	if err != nil {
		return nil, err
	}
	//nolint:gosec // PostgreSQL runs as another user
	if err := os.Chmod(folder, 0o755); err != nil {
		return nil, errors.Join(err, os.Remove(folder))
	}
	if err := syscall.Mount("tmpfs", folder, "tmpfs", 0,
		fmt.Sprintf("mode=0755,size=%d", int64(diskSize))); err != nil {
		return nil, errors.Join(fmt.Errorf("mount a tmpfs: %w", err), os.Remove(folder))
	}
	return &disk{folder}, nil
}

// fill shrinks the disk until only the given number of bytes is free, as if an unrelated file had
// taken up the rest.
func (d *disk) fill(freeBytes uint64) (err error) {
	for range 100 {
		var s syscall.Statfs_t
		if err := syscall.Statfs(d.folder, &s); err != nil {
			return err
		}
		used := (s.Blocks - s.Bfree) * uint64(s.Bsize) //nolint:gosec // not negative
		// EINVAL means that a program has stored more data meanwhile, which does not fit into the
		// new size. Try again with the current usage.
		if err = d.resize(max(used+freeBytes, 1)); !errors.Is(err, syscall.EINVAL) {
			return err
		}
	}
	return err
}

// restoreSize restores the full size of the disk.
func (d *disk) restoreSize() error { return d.resize(diskSize) }

func (d *disk) resize(bytes uint64) error {
	return syscall.Mount("tmpfs", d.folder, "tmpfs", syscall.MS_REMOUNT,
		fmt.Sprintf("size=%d", bytes))
}

func (d *disk) remove() error {
	return errors.Join(syscall.Unmount(d.folder, syscall.MNT_DETACH), os.Remove(d.folder))
}
