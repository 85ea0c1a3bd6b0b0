// Package network connects simulated hosts on one machine through a switch that can break the
// connections between them. Each host is a network namespace with one TUN device. The process that
// creates the network acts as the switch: it reads packets from one device and writes them to
// another. It can drop or delay packets between two hosts, even in only one direction, without
// traffic control in the kernel. The package works on Linux, as root.
package network

import (
	"net/netip"
	"time"
)

// Condition describes what happens to the packets from one host to another. The zero value delivers
// all of them immediately.
type Condition struct {
	// Cut means that all packets are lost.
	Cut bool
	// Loss is the fraction of packets that are lost, from 0 to 1.
	Loss float64
	// Delay is the additional latency of each packet. Packets keep their order.
	Delay time.Duration
}

// Host is one network namespace. Other hosts can reach it by name; the program that created the
// network can reach it by its address.
type Host struct {
	// Name is the host name by which the other hosts reach this host.
	Name string
	// Addr is the host's IP address in the network.
	Addr netip.Addr

	network   *Network
	index     int
	namespace string
}
