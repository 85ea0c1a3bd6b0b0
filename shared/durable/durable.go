// Package durable creates folders and files that survive a power cut: it syncs them and the folders
// that contain them.
package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// MkdirAll is like os.MkdirAll, but makes the new folders durable: it syncs each folder that it
// creates, and the existing folder that contains the topmost new one. It also syncs a folder that
// already exists, and its parent, because a power cut may have occurred between the folder's
// creation and its sync.
func MkdirAll(folder string, perm fs.FileMode) error {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	// Collect the folders to sync, from the innermost upward: folder, its parent, and all others in
	// which a folder will be created.
	changed := []string{folder, filepath.Dir(folder)}
	for parent := filepath.Dir(folder); parent !=
		filepath.Dir(parent); parent = filepath.Dir(parent) {
		if _, err := os.Lstat(parent); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		changed = append(changed, filepath.Dir(parent))
	}
	if err := os.MkdirAll(folder, perm); err != nil {
		return err
	}
	for _, path := range changed {
		if err := SyncFolder(path); err != nil {
			return err
		}
	}
	return nil
}

// WriteFile is like os.WriteFile, but replaces the file by renaming. Other processes therefore see
// either the complete old file or the complete new one, even after a power cut.
func WriteFile(path string, data []byte, perm fs.FileMode) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = file.Close() // it may already be closed
			_ = os.Remove(file.Name())
		}
	}()
	if _, err = file.Write(data); err != nil {
		return err
	}
	if err = errors.Join(file.Chmod(perm), file.Sync(), file.Close()); err != nil {
		return err
	}
	if err = os.Rename(file.Name(), path); err != nil {
		return err
	}
	return SyncFolder(filepath.Dir(path))
}

// SyncFolder makes changes to the entries of a folder durable, such as a new or renamed file. It
// does nothing on systems where folders cannot be synced, or if the user may not read the folder.
func SyncFolder(folder string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	f, err := os.Open(folder) //nolint:gosec // a folder of our own, or its parent
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	err = f.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		err = nil // some network file systems do not support it
	}
	if err != nil {
		err = fmt.Errorf("sync the folder %s: %w", folder, err)
	}
	return errors.Join(err, f.Close())
}
