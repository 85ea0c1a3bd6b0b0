package bench

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// generator sends requests over keep-alive connections, all from a single thread with epoll. With
// net/http, or with a goroutine for each connection, the client would use more of the machine's few
// cores than the programs that are measured.
type generator struct {
	epoll, timer  int
	connections   []*httpConn
	events        []unix.EpollEvent
	workflows     uint64
	seed          uint64
	deliveryCount *uint64 // number of delivery IDs used so far; see newGenerator

	// allow429 makes the generator accept and count 429 responses. Otherwise a 429 is an error.
	allow429 bool
	// allow503 makes the generator accept and count 503 responses. Otherwise a 503 is an error.
	allow503 bool
	// onAnswer is called when a response has been read: number is the number of its request, and at
	// is the current time. It may be nil.
	onAnswer func(number uint64, at time.Time)
	// onConnAnswer is called when a response has been read: c is its connection, and at is the
	// current time. It may be nil.
	onConnAnswer func(c *httpConn, at time.Time)
}

// httpConn is one keep-alive connection with at most one request in flight.
type httpConn struct {
	fd             int
	request        request
	deliveryNumber uint64 // number of the delivery in flight; see request.setDelivery
	answer         []byte
	received       int
	dueAt          time.Time // when the request was due; in a closed loop, when it was sent
	sentAt         time.Time // when the request was sent
}

// newGenerator returns a generator with open connections. The generator increments *deliveryCount
// for each delivery ID that it uses. Generators with the same seed must share the counter, so that
// no ID is used twice.
func newGenerator(
	to requestTarget, connections, bodyBytes, workflows int, seed uint64, deliveryCount *uint64,
) (g *generator, err error) {
	//nolint:gosec // not negative
	g = &generator{
		epoll:         -1,
		timer:         -1,
		events:        make([]unix.EpollEvent, connections+1),
		workflows:     uint64(workflows),
		seed:          seed,
		deliveryCount: deliveryCount,
	}
	defer func() {
		if err != nil {
			g.close()
		}
	}()
	addr, err := netip.ParseAddrPort(to.addr)
	if err != nil || !addr.Addr().Is4() || !addr.Addr().IsLoopback() {
		return nil, fmt.Errorf("%s is not on loopback", to.addr)
	}
	if g.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, err
	}
	if g.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC,
		unix.TFD_NONBLOCK|unix.TFD_CLOEXEC); err != nil {
		return nil, err
	}
	if err := g.addToEpoll(g.timer, -1); err != nil {
		return nil, err
	}
	for n := range connections {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		g.connections = append(g.connections, &httpConn{
			fd:      fd,
			request: newRequest(to, bodyBytes),
			answer:  make([]byte, 4096),
		})
		if err := errors.Join(
			unix.Connect(fd, &unix.SockaddrInet4{Port: int(addr.Port()), Addr: addr.Addr().As4()}),
			unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Sec: 10}),
			g.addToEpoll(fd, n),
		); err != nil {
			return nil, err
		}
	}
	return g, nil
}

func (g *generator) addToEpoll(fd, number int) error {
	//nolint:gosec // few
	return unix.EpollCtl(g.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{
		Events: unix.EPOLLIN,
		Fd:     int32(number),
	})
}

func (g *generator) close() {
	for _, c := range g.connections {
		_ = unix.Close(c.fd)
	}
	for _, fd := range [...]int{g.timer, g.epoll} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// run sends requests for the duration of the burst and waits for all responses. rate is the number
// of requests per second in an open loop, and 0 means a closed loop. In an open loop, the latency
// of a request counts from the time at which it is due, even if no connection is free then.
// Requests that are sent late because the server stalls therefore count as slow.
func (g *generator) run(burst time.Duration, rate float64) (burstResult, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	l := &generatorRun{
		generator: g,
		burst:     burst,
		idle:      slices.Clone(g.connections),
		startedAt: time.Now(),
	}
	l.latencies = make([]time.Duration, 0, 1<<17)
	if rate > 0 {
		l.total, l.interval = int(rate*burst.Seconds()), time.Duration(float64(time.Second)/rate)
		if err := g.setTimer(l.interval); err != nil {
			return l.burstResult, err
		}
		defer func() { _ = g.setTimer(0) }()
	}
	if err := l.sendDue(); err != nil {
		return l.burstResult, err
	}
	for l.answered < l.issued || l.issued < l.total {
		n, err := unix.EpollWait(g.epoll, g.events, 100)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return l.burstResult, err
		}
		if time.Since(l.startedAt) > burst+lastResponseTimeout {
			return l.burstResult,
				fmt.Errorf("%d requests have no answer after %s", l.issued-l.answered,
					lastResponseTimeout)
		}
		for _, event := range g.events[:max(n, 0)] {
			if event.Fd < 0 {
				err = errors.Join(g.readTimer(), l.sendDue())
			} else {
				err = l.readResponse(g.connections[event.Fd])
			}
			if err != nil {
				return l.burstResult, err
			}
		}
	}
	slices.Sort(l.latencies)
	return l.burstResult, nil
}

// generatorRun holds the state of one run of a generator.
type generatorRun struct {
	*generator
	burstResult

	burst     time.Duration
	startedAt time.Time
	interval  time.Duration // interval between the requests of an open loop; 0 means a closed loop
	total     int           // number of requests of an open loop
	issued    int
	idle      []*httpConn
}

// sendNext sends the next request on c. If the next request is not due yet, or the last one has
// been sent, it marks c as idle instead.
func (l *generatorRun) sendNext(c *httpConn, now time.Time) error {
	switch since := now.Sub(l.startedAt); {
	case l.interval == 0 && since < l.burst:
		c.dueAt = now
	case l.interval > 0 && l.issued < l.total && time.Duration(l.issued)*l.interval <= since:
		c.dueAt = l.startedAt.Add(time.Duration(l.issued) * l.interval)
	default:
		l.idle = append(l.idle, c)
		return nil
	}
	l.issued++
	c.sentAt = now
	return l.send(c)
}

// sendDue sends the requests that are due, each on an idle connection.
func (l *generatorRun) sendDue() error {
	waiting := l.idle
	l.idle = nil
	now := time.Now()
	for _, c := range waiting {
		if err := l.sendNext(c, now); err != nil {
			return err
		}
	}
	return nil
}

// readResponse reads from a connection. Once the response is complete, it counts the response and
// sends the next request.
func (l *generatorRun) readResponse(c *httpConn) error {
	length, status, err := c.read()
	if err != nil || length == 0 {
		return err
	}
	now := time.Now()
	switch status {
	case http.StatusTooManyRequests:
		if !l.allow429 {
			return errors.New("a request was refused for its workflow's rate limit")
		}
		l.rateLimited++
	case http.StatusServiceUnavailable:
		if !l.allow503 {
			return fmt.Errorf("answer %q", c.answer[:length])
		}
		l.unavailable++
	}
	if l.onAnswer != nil {
		l.onAnswer(c.deliveryNumber, now)
	}
	if l.onConnAnswer != nil {
		l.onConnAnswer(c, now)
	}
	l.answered++
	l.took = now.Sub(l.startedAt)
	l.latencies = append(l.latencies, now.Sub(c.dueAt))
	return l.sendNext(c, now)
}

func (g *generator) send(c *httpConn) error {
	*g.deliveryCount++
	c.deliveryNumber = *g.deliveryCount
	c.request.setDelivery(g.seed, c.deliveryNumber, g.workflows)
	n, err := unix.Write(c.fd, c.request.text)
	if err == nil && n < len(c.request.text) {
		err = errors.New("the server does not read")
	}
	return err
}

// read reads the bytes that are available. It returns the length and the status code of the
// response, or a length of 0 if the response is incomplete.
func (c *httpConn) read() (length, status int, err error) {
	n, err := unix.Read(c.fd, c.answer[c.received:])
	if err != nil {
		return 0, 0, err
	}
	if n == 0 {
		return 0, 0, errors.New("the server closed the connection")
	}
	c.received += n
	length, status, err = parseResponse(c.answer[:c.received])
	if err != nil || length == 0 {
		return 0, 0, err
	}
	if length != c.received {
		return 0, 0, fmt.Errorf("more than one answer: %q", c.answer[:c.received])
	}
	c.received = 0
	return length, status, nil
}

// setTimer makes the timer wake the generator at the given interval. An interval of 0 stops the
// timer.
func (g *generator) setTimer(every time.Duration) error {
	spec := unix.NsecToTimespec(every.Nanoseconds())
	return unix.TimerfdSettime(g.timer, 0, &unix.ItimerSpec{Interval: spec, Value: spec}, nil)
}

// readTimer reads the timer's expiration count, which resets it. If the count were not read, epoll
// would report the timer again and again.
func (g *generator) readTimer() error {
	var count [8]byte
	_, err := unix.Read(g.timer, count[:])
	if errors.Is(err, unix.EAGAIN) {
		return nil
	}
	return err
}
