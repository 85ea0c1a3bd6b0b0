// Package freeport tries TCP ports, and finds some for servers that keep theirs while they are stopped.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync/atomic"
	"syscall"
)

// The ports to choose from are below those that systems give to outgoing connections: one
// of these could take the port of a server that is stopped.
const (
	first = 20000
	last  = 32000
)

// next is where to look next. Each process begins elsewhere.
var next atomic.Int64

func init() { next.Store(rand.Int64N(last - first)) } //nolint:gosec // not a secret

// Port is a TCP port of 127.0.0.1 that is kept until Release.
type Port struct {
	Number      int
	reservation net.PacketConn
}

// Reserve finds a free port. Whoever reserves in the same way, in other processes too, sees
// that it is taken by the UDP port of the same number, which is held.
func Reserve() (*Port, error) {
	for range last - first {
		p := &Port{Number: first + int(next.Add(1)%(last-first))}
		var err error
		if p.reservation, err = net.ListenPacket("udp", p.Addr()); err != nil { //nolint:noctx // it does not block
			continue
		}
		if Try(p.Addr()) != nil {
			p.Release()
			continue
		}
		return p, nil
	}
	return nil, fmt.Errorf("no port between %d and %d is free", first, last)
}

// Try says why a TCP address is not to be had now. It leaves no socket behind: a process that
// is started meanwhile would have it open until its program runs, and the port would be in use.
func Try(addr string) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	l, err := net.Listen("tcp", addr) //nolint:noctx // it does not block
	if err != nil {
		return err
	}
	return l.Close()
}

// Addr is the port's address.
func (p *Port) Addr() string { return "127.0.0.1:" + strconv.Itoa(p.Number) }

// Release lets others have it.
func (p *Port) Release() { _ = p.reservation.Close() }
