//go:build !linux

package network

import (
	"errors"
	"fmt"
	"os/exec"
)

// Network is a stub: networks of simulated hosts are supported only on Linux.
type Network struct{}

// New returns an error that wraps errors.ErrUnsupported: a network needs Linux.
func New(uint64, ...string) (*Network, error) {
	return nil, fmt.Errorf("hosts in network namespaces need Linux: %w", errors.ErrUnsupported)
}

// Hosts returns nil, because there are no networks on this operating system.
func (*Network) Hosts() []*Host { return nil }

// SetCondition does nothing: it exists only so that its callers compile.
func (*Network) SetCondition(*Host, *Host, Condition) {}

// SetConditionBothWays does nothing: it exists only so that its callers compile.
func (*Network) SetConditionBothWays(*Host, *Host, Condition) {}

// SetIsolated does nothing: it exists only so that its callers compile.
func (*Network) SetIsolated(*Host, bool) {}

// Heal does nothing: it exists only so that its callers compile.
func (*Network) Heal() {}

// Close does nothing: it exists only so that its callers compile.
func (*Network) Close() error { return nil }

// Command exists only so that its callers compile. It is never called, because there are no hosts.
func (*Host) Command(program string, args ...string) *exec.Cmd {
	return exec.Command(program, args...) //nolint:gosec,noctx // never called: there is no host
}
