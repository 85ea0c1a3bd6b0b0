//go:build !linux

package soak

import "errors"

// disk is a stub: separate file systems are supported only on Linux.
type disk struct{ folder string }

func newDisk() (*disk, error) { return nil, errors.ErrUnsupported }

func (*disk) fill(uint64) error  { return errors.ErrUnsupported }
func (*disk) restoreSize() error { return errors.ErrUnsupported }
func (*disk) remove() error      { return nil }
