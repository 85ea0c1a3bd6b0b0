// Package freeport reserves TCP ports for servers. A port stays reserved while its server is
// stopped, so that the server can be restarted on the same port.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync/atomic"
)

// Ports are reserved from this range. It is below the range of ephemeral ports, because an outgoing
// connection could otherwise take the port of a stopped server.
const (
	minPort = 20000
	maxPort = 32000
)

// nextOffset determines the port that the next call to Reserve tries first. Its initial value is
// random, so that processes try different ports.
var nextOffset atomic.Int64

func init() { nextOffset.Store(rand.Int64N(maxPort - minPort)) } //nolint:gosec // not a secret

// Port is a TCP port on 127.0.0.1 that is reserved until Release.
type Port struct {
	// Number is the TCP port, and the UDP port that reserves it.
	Number      int
	reservation net.PacketConn
}

// Reserve finds a free TCP port and reserves it by binding the UDP port with the same number. Later
// calls to Reserve, in this and in other processes, skip the port until it is released.
func Reserve() (*Port, error) {
	for range maxPort - minPort {
		p := &Port{Number: minPort + int(nextOffset.Add(1)%(maxPort-minPort))}
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
	return nil, fmt.Errorf("no port between %d and %d is free", minPort, maxPort)
}

// Addr returns the port's address, 127.0.0.1:port.
func (p *Port) Addr() string { return "127.0.0.1:" + strconv.Itoa(p.Number) }

// Release ends the reservation. Afterwards, other callers may reserve the port.
func (p *Port) Release() { _ = p.reservation.Close() }
