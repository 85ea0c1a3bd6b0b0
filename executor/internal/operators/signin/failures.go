package signin

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hookstart/hookstart/shared/retry"
)

// Places where a sign-in can fail. They are the values of CountAndDelay's parameter at, and of the
// metric's label "at".
const (
	FailedAtAPI     = "api"
	FailedAtConsole = "console"
)

const (
	// undelayedFailures is the number of failures from one source whose responses are not delayed.
	// The number is not zero because people mistype tokens, and clients may still use old ones.
	undelayedFailures = 20
	// minDelay is the delay of the first failure after the undelayed ones. The delay doubles with
	// each further failure from the same source, up to maxDelay.
	minDelay = 100 * time.Millisecond
	maxDelay = 3 * time.Second
	// failureRetention is how long the failures of a source are kept after its last failure.
	failureRetention = 10 * time.Minute
	// maxSources is the maximum number of sources whose failures are kept. It limits the memory
	// that an attacker with many addresses can occupy.
	maxSources = 10_000
	// maxConcurrentDelays is the maximum number of responses that are delayed at the same time. The
	// limit exists because each delayed response occupies a connection.
	maxConcurrentDelays = 1_000
)

// FailureThrottle counts failed sign-ins and delays the responses to them. The more failures come
// from a source, the longer the delay. A source is an IPv4 address or an IPv6 /64. The correct
// token is accepted without a delay even from a source with many failures, so an attacker cannot
// lock an operator out. FailureThrottle is safe for concurrent use.
type FailureThrottle struct {
	count *prometheus.CounterVec
	now   func() time.Time
	sleep func(context.Context, time.Duration)

	mu               sync.Mutex
	sources          map[netip.Prefix]*sourceFailures
	delayedResponses int
}

type sourceFailures struct {
	failures      int
	lastFailureAt time.Time
}

// NewFailureThrottle returns a FailureThrottle whose metric is registered with metrics.
func NewFailureThrottle(metrics prometheus.Registerer) *FailureThrottle {
	f := &FailureThrottle{
		count: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hookstart_executor_failed_sign_ins_total",
			Help: "Requests with a wrong token at the operators' API, and failed sign-ins at the " +
				"console.",
		}, []string{"at"}),
		now: time.Now, sleep: retry.Sleep, sources: map[netip.Prefix]*sourceFailures{},
	}
	for _, at := range []string{FailedAtAPI, FailedAtConsole} {
		f.count.WithLabelValues(at)
	}
	metrics.MustRegister(f.count)
	return f
}

// CountAndDelay counts a failure and waits until the response may be sent. at is FailedAtAPI or
// FailedAtConsole. remote is the address of the connection's peer, as ADDRESS:PORT. CountAndDelay
// does not use addresses in headers, because an attacker can forge them. All failures behind the
// same proxy therefore share one delay.
func (f *FailureThrottle) CountAndDelay(ctx context.Context, at, remote string) {
	f.count.WithLabelValues(at).Inc()
	d, wait := f.countFailure(sourcePrefix(remote))
	if !wait {
		return
	}
	defer f.releaseDelaySlot()
	f.sleep(ctx, d)
}

// countFailure counts a failure from the given source. d is how long the caller must delay the
// response. wait reports whether to delay it at all. If wait is true, the caller must call
// releaseDelaySlot after the delay.
func (f *FailureThrottle) countFailure(from netip.Prefix) (d time.Duration, wait bool) {
	now := f.now()
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.sources[from]
	if s == nil {
		f.evictSources(now)
		s = &sourceFailures{}
		f.sources[from] = s
	}
	if now.Sub(s.lastFailureAt) > failureRetention {
		s.failures = 0
	}
	s.failures++
	s.lastFailureAt = now
	over := s.failures - undelayedFailures
	if over <= 0 || f.delayedResponses >= maxConcurrentDelays {
		return 0, false
	}
	f.delayedResponses++
	return min(minDelay<<min(over-1, 10), maxDelay), true
}

func (f *FailureThrottle) releaseDelaySlot() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.delayedResponses--
}

// evictSources makes room for one more source if there are already maxSources. It removes all
// sources whose last failure is older than failureRetention and, if that is not enough, an
// arbitrary one. The caller must hold mu.
func (f *FailureThrottle) evictSources(now time.Time) {
	if len(f.sources) < maxSources {
		return
	}
	for from, s := range f.sources {
		if now.Sub(s.lastFailureAt) > failureRetention {
			delete(f.sources, from)
		}
	}
	for from := range f.sources {
		if len(f.sources) < maxSources {
			return
		}
		delete(f.sources, from)
	}
}

// sourcePrefix returns the source of a connection: an IPv4 address, or the /64 of an IPv6 address,
// which usually belongs to one subscriber. All invalid addresses count as one source.
func sourcePrefix(remote string) netip.Prefix {
	addrPort, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	addr, bits := addrPort.Addr().Unmap().WithZone(""), 64
	if addr.Is4() {
		bits = 32
	}
	prefix, err := addr.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return prefix
}
