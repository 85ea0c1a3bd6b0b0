//go:build !linux

package soak

import "errors"

// disk is a separate file system. It is not supported on this operating system.
type disk struct{ folder string }

func newDisk() (*disk, error) { return nil, errors.ErrUnsupported }

func (*disk) fill(uint64) error  { return errors.ErrUnsupported }
func (*disk) restoreSize() error { return errors.ErrUnsupported }
func (*disk) remove() error      { return nil }
