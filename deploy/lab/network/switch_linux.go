package network

import (
	"math/rand/v2"
	"net/netip"
	"os"
	"sync"
	"time"
)

// maxPacketSize is the maximum packet size in bytes.
const maxPacketSize = 9000

// maxQueuedPackets is the maximum number of delayed packets that a link queues. Further packets are
// lost, as in a router whose buffer is full.
const maxQueuedPackets = 4096

// packetSwitch forwards each packet to the device with the packet's destination address.
type packetSwitch struct {
	devices       []*os.File
	deviceIndexes map[netip.Addr]int // the index of each device, keyed by its address
	// the link between each pair of devices: links[from][to]
	links             [][]*oneWayLink
	readers           sync.WaitGroup
	delayedForwarders sync.WaitGroup
}

// oneWayLink is the link from one device to another, in one direction.
type oneWayLink struct {
	destination *os.File
	delayed     chan packet

	mu        sync.Mutex
	condition Condition
	random    *rand.Rand
	lastDue   time.Time // when the most recently delayed packet is due
	queued    int       // number of delayed packets that are not forwarded yet
}

type packet struct {
	bytes []byte
	dueAt time.Time
}

// newPacketSwitch starts a switch that forwards packets between the devices until all of them are
// closed. deviceIndexes holds the index of each device, keyed by its address. The seed determines
// which packets a link with a loss rate drops.
func newPacketSwitch(
	devices []*os.File, deviceIndexes map[netip.Addr]int, seed uint64,
) *packetSwitch {
	j := &packetSwitch{devices: devices, deviceIndexes: deviceIndexes}
	for from := range devices {
		var ways []*oneWayLink
		for to, device := range devices {
			//nolint:gosec // not a secret
			random := rand.New(rand.NewPCG(seed, uint64(from*len(devices)+to)))
			w := &oneWayLink{
				destination: device,
				delayed:     make(chan packet, maxQueuedPackets),
				random:      random,
			}
			j.delayedForwarders.Go(w.forwardDelayed)
			ways = append(ways, w)
		}
		j.links = append(j.links, ways)
	}
	for from := range devices {
		j.readers.Go(func() { j.forwardFrom(from) })
	}
	return j
}

func (j *packetSwitch) link(from, to int) *oneWayLink { return j.links[from][to] }

// forwardFrom forwards the packets that one device sends, until the device is closed.
func (j *packetSwitch) forwardFrom(from int) {
	buffer := make([]byte, maxPacketSize)
	for {
		size, err := j.devices[from].Read(buffer)
		if err != nil {
			return // the device is closed
		}
		if to, ok := j.receiverIndex(buffer[:size]); ok {
			j.links[from][to].forward(buffer[:size])
		}
	}
}

// receiverIndex returns the index of the device that a packet is addressed to. ok is false if the
// packet is not IPv4 or is addressed to no device; the switch then drops it.
func (j *packetSwitch) receiverIndex(bytes []byte) (index int, ok bool) {
	const version4, destination = 4, 16
	if len(bytes) < destination+4 || bytes[0]>>4 != version4 {
		return 0, false
	}
	index, ok = j.deviceIndexes[netip.AddrFrom4([4]byte(bytes[destination:destination+4]))]
	return index, ok
}

// wait waits until all devices are closed and no more packets are being forwarded.
func (j *packetSwitch) wait() {
	j.readers.Wait()
	for _, ways := range j.links {
		for _, w := range ways {
			close(w.delayed)
		}
	}
	j.delayedForwarders.Wait()
}

func (w *oneWayLink) setCondition(c Condition) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.condition = c
}

// setCut makes the link lose every packet if cut is true, and otherwise makes it work again. The
// delay and the loss rate stay unchanged.
func (w *oneWayLink) setCut(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.condition.Cut = cut
}

// forward delivers a packet immediately, delays it or drops it, according to the link's condition.
// The caller may reuse the bytes after forward has returned.
func (w *oneWayLink) forward(bytes []byte) {
	now := time.Now()
	w.mu.Lock()
	c := w.condition
	lost := c.Cut || c.Loss > 0 && w.random.Float64() < c.Loss
	at := now.Add(c.Delay)
	if at.Before(w.lastDue) {
		at = w.lastDue // packets keep their order
	}
	direct := w.queued == 0 && !at.After(now)
	lost = lost || !direct && w.queued == maxQueuedPackets
	if !lost && !direct {
		w.lastDue = at
		w.queued++
	}
	w.mu.Unlock()
	switch {
	case lost:
	case direct:
		_, _ = w.destination.Write(bytes) // a failed write loses the packet, as a network would
	default:
		// The channel has room for all waiting packets, so this does not block.
		w.delayed <- packet{append([]byte(nil), bytes...), at}
	}
}

// forwardDelayed writes each delayed packet when it is due, unless the link is cut at that time, in
// which case the packet is lost.
func (w *oneWayLink) forwardDelayed() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for p := range w.delayed {
		timer.Reset(time.Until(p.dueAt))
		<-timer.C
		w.mu.Lock()
		cut := w.condition.Cut
		w.mu.Unlock()
		if !cut {
			_, _ = w.destination.Write(p.bytes)
		}
		w.mu.Lock()
		w.queued--
		w.mu.Unlock()
	}
}
