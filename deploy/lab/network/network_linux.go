package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Network is a group of hosts and the switch between them. It also connects each host with the
// program that created the Network; the methods that break connections never affect these
// connections.
type Network struct {
	subnetNumber int          // number of the subnet; no other network on this machine has it
	reservation  net.Listener // reserves subnetNumber; closed at the latest when the process ends
	hosts        []*Host
	created      []*Host // hosts whose namespaces were created
	devices      []*os.File
	packetSwitch *packetSwitch
}

// maxNetworks is the maximum number of simultaneous networks on one machine. They use 198.18.0.0/24
// to 198.18.255.0/24, which are reserved for benchmark tests.
const maxNetworks = 256

// maxHosts is the maximum number of hosts in one network. Their addresses end in 1 to maxHosts,
// below creatorAddrByte.
const maxHosts = 100

// creatorAddrByte is the last byte of the address of the program that created the network.
const creatorAddrByte = 254

const tunPath = "/dev/net/tun"

// New creates a network with one host for each name. The seed determines which packets are lost on
// links whose Loss is not 0. The error wraps errors.ErrUnsupported if the program lacks root
// privileges, or if the machine lacks TUN devices or ip(8). The caller must end all programs in the
// hosts and then call Close.
func New(seed uint64, names ...string) (_ *Network, err error) {
	if err := checkSupported(); err != nil {
		return nil, err
	}
	if len(names) == 0 || len(names) > maxHosts {
		return nil, fmt.Errorf("%d hosts: it must be 1 to %d", len(names), maxHosts)
	}
	n := &Network{}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	if err := n.reserveSubnet(); err != nil {
		return nil, err
	}
	for i, name := range names {
		n.hosts = append(n.hosts, &Host{
			Name:      name,
			Addr:      n.subnetAddr(i + 1),
			network:   n,
			index:     i,
			namespace: n.namespaceName(name),
		})
	}
	for _, h := range n.hosts {
		if err := n.createHost(h); err != nil {
			return nil, err
		}
	}
	device, err := createDevice("", n.deviceName())
	if err != nil {
		return nil, err
	}
	n.devices = append(n.devices, device)
	if err := configureDevice("", n.deviceName(), n.subnetAddr(creatorAddrByte)); err != nil {
		return nil, err
	}
	addrs := map[netip.Addr]int{n.subnetAddr(creatorAddrByte): len(n.hosts)}
	for i, h := range n.hosts {
		addrs[h.Addr] = i
	}
	n.packetSwitch = newPacketSwitch(n.devices, addrs, seed)
	return n, nil
}

func checkSupported() error {
	unsupported := func(reason string) error {
		return fmt.Errorf("no hosts in network namespaces: %s: %w", reason, errors.ErrUnsupported)
	}
	if os.Geteuid() != 0 {
		return unsupported("it needs root's rights")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return unsupported("there is no program ip (package iproute2)")
	}
	device, err := os.OpenFile(tunPath, os.O_RDWR, 0)
	if err != nil {
		return unsupported(err.Error())
	}
	return device.Close()
}

// reserveSubnet reserves the number of a subnet that no other process on this machine uses, and
// removes the namespaces that a killed process has left under that number.
func (n *Network) reserveSubnet() error {
	taken := map[netip.Prefix]bool{}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return err
	}
	for _, addr := range addrs {
		if prefix, err := netip.ParsePrefix(addr.String()); err == nil {
			taken[prefix.Masked()] = true
		}
	}
	for n.subnetNumber = range maxNetworks {
		if taken[netip.PrefixFrom(n.subnetAddr(0), prefixBits)] {
			continue
		}
		// Listening on a name in the abstract namespace reserves the number. It leaves no socket
		// file behind, even if this process is killed.
		//nolint:noctx // it does not block
		n.reservation, err = net.Listen("unix", "@hookstart-lab-"+strconv.Itoa(n.subnetNumber))
		if err == nil {
			return n.removeLeftoverNamespaces()
		}
	}
	return errors.New("no subnet of 198.18.0.0/16 is free")
}

func (n *Network) removeLeftoverNamespaces() error {
	old, err := filepath.Glob(filepath.Join("/run/netns", n.namespaceName("*")))
	if err != nil {
		return err
	}
	for _, path := range old {
		if err := removeNamespace(filepath.Base(path)); err != nil {
			return err
		}
	}
	return nil
}

const prefixBits = 24

func (n *Network) subnetAddr(last int) netip.Addr {
	//nolint:gosec // both are below 256
	return netip.AddrFrom4([4]byte{198, 18, byte(n.subnetNumber), byte(last)})
}

func (n *Network) namespaceName(host string) string {
	return fmt.Sprintf("hookstart-%d-%s", n.subnetNumber, host)
}

// deviceName returns the name that the devices of all hosts have. They can have the same name,
// because each of them is in a separate namespace.
func (n *Network) deviceName() string { return "hookstart" + strconv.Itoa(n.subnetNumber) }

// createHost creates the network namespace of a host, with its hosts file and its TUN device.
func (n *Network) createHost(h *Host) error {
	if err := runIP("netns", "add", h.namespace); err != nil {
		// In a container, the root user may lack the necessary privileges.
		return fmt.Errorf("%w: %w", err, errors.ErrUnsupported)
	}
	n.created = append(n.created, h)
	if err := n.writeHostsFile(h); err != nil {
		return err
	}
	if err := runIP("-n", h.namespace, "link", "set", "lo", "up"); err != nil {
		return err
	}
	device, err := createDevice(h.namespace, n.deviceName())
	if err != nil {
		return err
	}
	n.devices = append(n.devices, device)
	return configureDevice(h.namespace, n.deviceName(), h.Addr)
}

// writeHostsFile writes the file that ip netns exec mounts as /etc/hosts for a host's programs.
func (n *Network) writeHostsFile(h *Host) error {
	var text strings.Builder
	text.WriteString("127.0.0.1 localhost\n")
	for _, other := range n.hosts {
		text.WriteString(other.Addr.String() + " " + other.Name + "\n")
	}
	folder := netnsFolder(h.namespace)
	//nolint:gosec // no secrets
	return errors.Join(os.MkdirAll(folder, 0o755),
		os.WriteFile(filepath.Join(folder, "hosts"), []byte(text.String()), 0o644))
}

func netnsFolder(namespace string) string { return filepath.Join("/etc/netns", namespace) }

// createDevice creates a TUN device in a namespace, or in this process's namespace if namespace is
// "". The device exists until the file is closed.
func createDevice(namespace, name string) (file *os.File, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if namespace != "" {
			// The goroutine ends without unlocking its thread, so the runtime ends the thread
			// instead of reusing it in the wrong namespace.
			runtime.LockOSThread()
			if err = enterNamespace(namespace); err != nil {
				return
			}
		}
		file, err = createTUN(name)
	}()
	<-done
	if err != nil {
		return nil, fmt.Errorf("make a TUN device: %w", err)
	}
	return file, nil
}

func enterNamespace(namespace string) error {
	//nolint:gosec // a namespace of the tool
	file, err := os.Open(filepath.Join("/run/netns", namespace))
	if err != nil {
		return err
	}
	return errors.Join(unix.Setns(int(file.Fd()), unix.CLONE_NEWNET), file.Close())
}

func createTUN(name string) (*os.File, error) {
	fd, err := unix.Open(tunPath, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), name), nil
}

// configureDevice sets a device's address and its maximum packet size, and brings it up. Large
// packets reduce the switch's CPU usage.
func configureDevice(namespace, device string, addr netip.Addr) error {
	var in []string
	if namespace != "" {
		in = []string{"-n", namespace}
	}
	prefix := netip.PrefixFrom(addr, prefixBits).String()
	return errors.Join(
		runIP(append(in, "addr", "add", prefix, "dev", device)...),
		runIP(append(in, "link", "set", device, "mtu", strconv.Itoa(maxPacketSize), "txqueuelen",
			"5000", "up")...))
}

// Hosts returns the hosts in the order of the names passed to New.
func (n *Network) Hosts() []*Host { return n.hosts }

// SetCondition sets the condition for packets from one host to another.
func (n *Network) SetCondition(from, to *Host, c Condition) {
	n.packetSwitch.link(from.index, to.index).setCondition(c)
}

// SetConditionBothWays sets the condition for packets between two hosts in both directions.
func (n *Network) SetConditionBothWays(a, b *Host, c Condition) {
	n.SetCondition(a, b, c)
	n.SetCondition(b, a, c)
}

// SetIsolated cuts a host off from all other hosts, in both directions, or reconnects it. The delay
// and the loss of its connections stay unchanged.
func (n *Network) SetIsolated(h *Host, cut bool) {
	for _, other := range n.hosts {
		if other != h {
			n.packetSwitch.link(h.index, other.index).setCut(cut)
			n.packetSwitch.link(other.index, h.index).setCut(cut)
		}
	}
}

// Heal resets all conditions: every packet between hosts is delivered immediately again. Packets
// that were lost are not sent again.
func (n *Network) Heal() {
	for _, from := range n.hosts {
		for _, to := range n.hosts {
			n.SetCondition(from, to, Condition{})
		}
	}
}

// Close removes the hosts. The caller must end all programs in them first.
func (n *Network) Close() error {
	var errs []error
	for _, device := range n.devices {
		errs = append(errs, device.Close())
	}
	if n.packetSwitch != nil {
		n.packetSwitch.wait()
	}
	for _, h := range n.created {
		errs = append(errs, removeNamespace(h.namespace))
	}
	if n.reservation != nil {
		errs = append(errs, n.reservation.Close())
	}
	return errors.Join(errs...)
}

func removeNamespace(name string) error {
	err := errors.Join(runIP("netns", "delete", name), os.RemoveAll(netnsFolder(name)))
	// Also remove the parent folder, which all namespaces share. This fails if it still holds files
	// of other namespaces.
	_ = os.Remove(filepath.Dir(netnsFolder(name)))
	return err
}

// Command returns a command that runs a program in the host. ip(8) replaces itself with the
// program, so the process ID is the program's. The program's os.Args[0] is the given path.
func (h *Host) Command(program string, args ...string) *exec.Cmd {
	//nolint:gosec,noctx // the caller ends it by signals
	return exec.Command("ip", append([]string{"netns", "exec", h.namespace, program}, args...)...)
}

func runIP(args ...string) error {
	//nolint:gosec,noctx // it does not block
	output, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err,
			strings.TrimSpace(string(output)))
	}
	return nil
}
