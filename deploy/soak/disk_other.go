//go:build !linux

package soak

import "errors"

// disk is a file system of its own. There is none here.
type disk struct{ folder string }

func newDisk() (*disk, error) { return nil, errors.ErrUnsupported }

func (*disk) fill(uint64) error { return errors.ErrUnsupported }
func (*disk) free() error       { return errors.ErrUnsupported }
func (*disk) remove() error     { return nil }
