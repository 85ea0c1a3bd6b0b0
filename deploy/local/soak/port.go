package soak

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// The ports to choose from are below those that systems give to outgoing connections: one
// of these could take the port of a process that is down.
const (
	firstPort = 20000
	lastPort  = 32000
)

// ports reserves TCP ports until it is closed: each by the UDP port of the same number,
// which keeps others who reserve in the same way from it.
type ports struct{ held []net.PacketConn }

func (p *ports) reserve() (addr string, err error) {
	for range lastPort - firstPort {
		addr := fmt.Sprintf("127.0.0.1:%d", firstPort+rand.IntN(lastPort-firstPort)) //nolint:gosec // not a secret
		reservation, err := net.ListenPacket("udp", addr)                            //nolint:noctx // it does not block
		if err != nil {
			continue
		}
		l, err := net.Listen("tcp", addr) //nolint:noctx // it does not block
		if err != nil {
			_ = reservation.Close()
			continue
		}
		_ = l.Close()
		p.held = append(p.held, reservation)
		return addr, nil
	}
	return "", errors.New("no free port was found")
}

func (p *ports) close() {
	for _, reservation := range p.held {
		_ = reservation.Close()
	}
}
