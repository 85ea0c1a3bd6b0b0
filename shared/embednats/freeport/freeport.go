// Package freeport finds TCP ports for servers that keep theirs while they are stopped.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync/atomic"
)

// The ports are below the range of outgoing connections, because an outgoing connection could take
// the port of a stopped server.
const (
	first = 20000
	last  = 32000
)

// next is the number at which the next search begins. Each process begins with a different one.
var next atomic.Int64

func init() { next.Store(rand.Int64N(last - first)) } //nolint:gosec // not a secret

// Port is a TCP port of 127.0.0.1 that is reserved until Release.
type Port struct {
	// Number is the TCP port, and the UDP port that reserves it.
	Number      int
	reservation net.PacketConn
}

// Reserve finds a free port, and reserves it by binding the UDP port of the same number. So other
// callers, including those in other processes, see that it is taken.
func Reserve() (*Port, error) {
	for range last - first {
		p := &Port{Number: first + int(next.Add(1)%(last-first))}
		var err error
		//nolint:noctx // it does not block
		p.reservation, err = net.ListenPacket("udp", p.Addr())
		if err != nil {
			continue
		}
		l, err := net.Listen("tcp", p.Addr()) //nolint:noctx // it does not block
		if err != nil {
			p.Release()
			continue
		}
		_ = l.Close()
		return p, nil
	}
	return nil, fmt.Errorf("no port between %d and %d is free", first, last)
}

// Addr returns the address of the port.
func (p *Port) Addr() string { return "127.0.0.1:" + strconv.Itoa(p.Number) }

// Release makes the port available to other callers.
func (p *Port) Release() { _ = p.reservation.Close() }
