// Package network joins hosts on one machine by a switch that can break the connections between
// them. Each host is a network namespace with one TUN device, and the switch is this process, which
// reads a packet from one device and writes it to another. So it can lose, delay and cut what goes
// from one host to another, even in one direction only, and needs no traffic control of the kernel.
// It works on Linux, as root.
package network

import (
	"net/netip"
	"time"
)

// Condition describes what happens to the packets from one host to another. The zero value delivers
// all of them at once.
type Condition struct {
	// Cut loses every packet.
	Cut bool
	// Loss is the share of packets that are lost, from 0 to 1.
	Loss float64
	// Delay is the additional time until each packet arrives. Packets keep their order.
	Delay time.Duration
}

// Host is one network namespace. It reaches the other hosts by their names, and the program that
// made the network reaches it by its address.
type Host struct {
	// Name is the name under which the other hosts know the host.
	Name string
	// Addr is the host's address in the network.
	Addr netip.Addr

	network   *Network
	index     int
	namespace string
}
