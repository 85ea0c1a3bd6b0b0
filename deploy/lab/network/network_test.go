package network_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/deploy/lab/network"
	"github.com/hookstart/hookstart/shared/child/childtest"
)

// When the test binary is started under one of these names, it acts as that program in a host
// instead of running the tests.
const (
	roleEcho  = "echo-datagrams"
	roleCount = "send-datagrams"
	roleTrips = "measure-round-trips"
)

const port = "7007"

func TestMain(m *testing.M) {
	var err error
	switch filepath.Base(os.Args[0]) {
	case roleEcho:
		err = echo()
	case roleCount:
		err = count(os.Args[1])
	case roleTrips:
		err = measure(os.Args[1])
	default:
		os.Exit(m.Run())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// echo receives datagrams on port, prints each of them, and sends it back.
func echo() error {
	conn, err := net.ListenPacket("udp", ":"+port)
	if err != nil {
		return err
	}
	buffer := make([]byte, 100)
	for {
		size, from, err := conn.ReadFrom(buffer)
		if err != nil {
			return err
		}
		fmt.Printf("got %s.\n", buffer[:size])
		_, _ = conn.WriteTo(buffer[:size], from)
	}
}

// count sends the numbers 0, 1, 2 and so on to a host, one in each datagram. It prints the numbers
// that it sends and the numbers that come back.
func count(to string) error {
	conn, err := net.Dial("udp", to)
	if err != nil {
		return err
	}
	go func() {
		buffer := make([]byte, 100)
		for {
			// Ignore errors: a read fails while nothing listens on the other host.
			if size, err := conn.Read(buffer); err == nil {
				fmt.Printf("back %s.\n", buffer[:size])
			}
		}
	}()
	tick := time.NewTicker(5 * time.Millisecond)
	for number := 0; ; number++ {
		<-tick.C
		_, _ = conn.Write([]byte(strconv.Itoa(number)))
		fmt.Printf("sent %d.\n", number)
	}
}

// measure sends one datagram after another to a host and prints each round-trip time in
// nanoseconds.
func measure(to string) error {
	conn, err := net.Dial("udp", to)
	if err != nil {
		return err
	}
	buffer := make([]byte, 100)
	for number := 0; ; number++ {
		text := strconv.Itoa(number)
		began := time.Now()
		_, _ = conn.Write([]byte(text))
		if err := conn.SetReadDeadline(began.Add(time.Second)); err != nil {
			return err
		}
		// Ignore a late response: it belongs to an earlier datagram and arrived after that
		// datagram's deadline.
		if size, err := conn.Read(buffer); err == nil && string(buffer[:size]) == text {
			fmt.Printf("took %d.\n", time.Since(began).Nanoseconds())
		}
	}
}

// pair is two hosts: near sends datagrams, and far sends them back.
type pair struct {
	network      *network.Network
	near, far    *network.Host
	sender, echo *childtest.Process
}

func newPair(t *testing.T) *pair {
	t.Helper()
	n := newNetwork(t, "near", "far")
	p := &pair{network: n, near: n.Hosts()[0], far: n.Hosts()[1]}
	launch := launcher(t)
	p.echo = launch(p.far, roleEcho)
	p.sender = launch(p.near, roleCount, "far:"+port)
	p.sender.Await(`(back \d+\.)`)
	return p
}

func newNetwork(t *testing.T, names ...string) *network.Network {
	t.Helper()
	n, err := network.New(1, names...)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// launcher returns a function that starts the test binary in a host, to act as the program that
// role names.
func launcher(t *testing.T) func(h *network.Host, role string, args ...string) *childtest.Process {
	t.Helper()
	folder := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, role := range []string{roleEcho, roleCount, roleTrips} {
		if err := os.Symlink(self, filepath.Join(folder, role)); err != nil {
			t.Fatal(err)
		}
	}
	return func(h *network.Host, role string, args ...string) *childtest.Process {
		return childtest.Launch(t, h.Command(filepath.Join(folder, role), args...))
	}
}

var numbers = regexp.MustCompile(`(got|back|sent) (\d+)\.`)

// seen returns the numbers that a process has printed after the given word, which is "got", "back"
// or "sent".
func seen(p *childtest.Process, word string) map[int]bool {
	all := map[int]bool{}
	for _, match := range numbers.FindAllStringSubmatch(p.Output(), -1) {
		if match[1] == word {
			number, _ := strconv.Atoi(match[2])
			all[number] = true
		}
	}
	return all
}

func last(p *childtest.Process, word string) int {
	newest := -1
	for number := range seen(p, word) {
		newest = max(newest, number)
	}
	return newest
}

// during applies a condition to the packets from one host to another while p.sender sends count
// datagrams. The numbers of these datagrams are begin to end-1.
func (p *pair) during(from, to *network.Host, c network.Condition, count int) (begin, end int) {
	p.network.SetCondition(from, to, c)
	begin = last(p.sender, "sent") + 10 // the next few datagrams may have been sent already
	end = begin + count
	p.sender.Await(fmt.Sprintf(`(sent %d\.)`, end+1))
	p.network.Heal()
	p.sender.Await(fmt.Sprintf(`back (%s)\.`, fromOn(end+10)))
	return begin, end
}

// fromOn returns a regular expression that matches the given number and each of the 99 numbers
// after it.
func fromOn(number int) string {
	var all []string
	for n := range 100 {
		all = append(all, strconv.Itoa(number+n))
	}
	return strings.Join(all, "|")
}

func arrived(numbers map[int]bool, begin, end int) (count int) {
	for number := begin; number < end; number++ {
		if numbers[number] {
			count++
		}
	}
	return count
}

func TestOneDirectionIsCut(t *testing.T) {
	p := newPair(t)
	const sent = 20

	begin, end := p.during(p.near, p.far, network.Condition{Cut: true}, sent)
	if got := arrived(seen(p.echo, "got"), begin, end); got != 0 {
		t.Errorf("the way there was cut, and %d of %d datagrams arrived", got, sent)
	}

	begin, end = p.during(p.far, p.near, network.Condition{Cut: true}, sent)
	if got := arrived(seen(p.echo, "got"), begin, end); got != sent {
		t.Errorf("the way back was cut, and %d of %d datagrams arrived", got, sent)
	}
	if got := arrived(seen(p.sender, "back"), begin, end); got != 0 {
		t.Errorf("the way back was cut, and %d of %d datagrams came back", got, sent)
	}
}

func TestSomeAreLost(t *testing.T) {
	p := newPair(t)
	const sent = 100
	begin, end := p.during(p.near, p.far, network.Condition{Loss: 0.5}, sent)
	if got := arrived(seen(p.echo, "got"), begin, end); got < sent/4 || got > sent*3/4 {
		t.Errorf("half were to be lost: %d of %d arrived", got, sent)
	}
}

func TestDelayedOnesComeLaterInOrder(t *testing.T) {
	p := newPair(t)
	const sent = 20
	p.network.SetCondition(p.near, p.far, network.Condition{Delay: 2 * time.Second})
	begin := last(p.sender, "sent") + 2
	// Because of the delay, the datagram with the number begin comes back only after many more were
	// sent.
	p.sender.Await(fmt.Sprintf(`(?s)(sent %d\..*back %d\.)`, begin+sent, begin))
	p.network.Heal()
	p.sender.Await(fmt.Sprintf(`back (%s)\.`, fromOn(begin+2*sent)))
	newest := -1
	for _, match := range numbers.FindAllStringSubmatch(p.echo.Output(), -1) {
		number, _ := strconv.Atoi(match[2])
		if number < newest {
			t.Errorf("%d arrived after %d", number, newest)
		}
		newest = number
	}
}

// A round trip takes at least the sum of the delays in both directions.
func TestARoundTripTakesBothDelays(t *testing.T) {
	n := newNetwork(t, "near", "far")
	near, far := n.Hosts()[0], n.Hosts()[1]
	const latency = 20 * time.Millisecond
	n.SetConditionBothWays(near, far, network.Condition{Delay: latency})
	launch := launcher(t)
	launch(far, roleEcho)
	checkTrips(t, launch(near, roleTrips, "far:"+port), 2*latency)
}

// checkTrips checks that each of ten round trips takes at least the given time.
func checkTrips(t *testing.T, trips *childtest.Process, least time.Duration) {
	t.Helper()
	const count = 10
	trips.Await(`(?s)((?:took \d+\..*){` + strconv.Itoa(count) + `})`)
	all := regexp.MustCompile(`took (\d+)\.`).FindAllStringSubmatch(trips.Output(), count)
	for _, match := range all {
		nanos, err := strconv.ParseInt(match[1], 10, 64)
		if took := time.Duration(nanos); err != nil || took < least {
			t.Errorf("a round trip took %s, not at least %s (%v)", took, least, err)
		}
	}
}

// An isolated host neither receives nor sends anything, while the other hosts still reach each
// other. After it is reconnected, its links have the same delays as before.
func TestAnIsolatedHost(t *testing.T) {
	n := newNetwork(t, "a", "b", "c")
	a, b, c := n.Hosts()[0], n.Hosts()[1], n.Hosts()[2]
	const latency = 20 * time.Millisecond
	n.SetConditionBothWays(a, c, network.Condition{Delay: latency})
	launch := launcher(t)
	type way struct {
		from, to *network.Host
		arrives  bool
		echo     *childtest.Process
		sender   *childtest.Process
		begin    int
	}
	// Each echo process receives from only one sender, so that its output shows which of the
	// sender's datagrams have arrived.
	ways := []*way{{from: a, to: c}, {from: c, to: a}, {from: a, to: b, arrives: true}}
	for _, w := range ways {
		w.echo = launch(w.to, roleEcho)
		w.sender = launch(w.from, roleCount, w.to.Name+":"+port)
		w.sender.Await(`(back \d+\.)`)
	}

	const sent = 20
	n.SetIsolated(c, true)
	for _, w := range ways {
		w.begin = last(w.sender, "sent") + 10 // the next few datagrams may have been sent already
	}
	for _, w := range ways {
		// Wait until many more datagrams are sent, so that even a delayed datagram would have
		// arrived.
		w.sender.Await(fmt.Sprintf(`(sent %d\.)`, w.begin+10*sent))
		got := arrived(seen(w.echo, "got"), w.begin, w.begin+sent)
		if want := map[bool]int{true: sent}[w.arrives]; got != want {
			t.Errorf("%s is isolated, and %d of %d datagrams from %s arrived at %s", c.Name, got,
				sent, w.from.Name, w.to.Name)
		}
	}

	n.SetIsolated(c, false)
	checkTrips(t, launch(a, roleTrips, "c:"+port), 2*latency)
}

func TestNothingStays(t *testing.T) {
	n, err := network.New(1, "near", "far")
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	namespaces := func() string {
		text, err := exec.CommandContext(t.Context(), "ip", "netns", "list").Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	// The namespace's name contains the number of the subnet, so it is different for each network.
	own := fmt.Sprintf("hookstart-%d-near", n.Hosts()[0].Addr.As4()[2])
	if !strings.Contains(namespaces(), own) {
		t.Errorf("there is no namespace %s", own)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(namespaces(), own) {
		t.Errorf("the namespace %s is still there", own)
	}
}
