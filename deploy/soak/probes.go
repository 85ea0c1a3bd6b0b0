package soak

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// probeInterval is the default interval between two probes of the same ingress.
const probeInterval = 100 * time.Millisecond

// probe is one request to a host, with its result. It is not retried.
type probe struct {
	began, ended time.Time
	accepted     bool
}

// probes continuously sends requests to the ingress, or the NATS server, of each host.
type probes struct {
	// send sends a request to a host and reports whether it was accepted. number counts the
	// requests to this host from 0.
	send     func(ctx context.Context, host, number int) bool
	interval time.Duration // interval between the probes sent to one host

	mu     sync.Mutex
	byHost [][]probe     // the probes sent to each host, in the order of their responses
	added  chan struct{} // closed and replaced when a probe is added
}

// newProbes returns probes of the ingresses. Each of their requests has a new delivery ID.
func newProbes(s *senders, i *installation) *probes {
	return &probes{
		send: func(ctx context.Context, host, number int) bool {
			path := s.webhookPaths[rand.IntN(len(s.webhookPaths))] //nolint:gosec // not a secret
			d := s.ledger.addDelivery(
				fmt.Sprintf("%s-probe-%s-%d", s.runID, hostNames[host], number), true)
			d.alwaysActive = true
			response, _ := s.sendAndRecord(ctx, d, path, i.ingresses[host].url)
			return response.Status == http.StatusOK
		},
		interval: probeInterval,
		byHost:   make([][]probe, len(i.ingresses)),
		added:    make(chan struct{}),
	}
}

// run sends probes until the measuring context is done. It returns when all responses have arrived.
func (p *probes) run(ctx, measuring context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	for host := range p.byHost {
		all.Go(func() {
			tick := time.NewTicker(p.interval)
			defer tick.Stop()
			for number := 0; ; number++ {
				select {
				case <-measuring.Done():
					return
				case <-tick.C:
				}
				all.Go(func() { p.sendProbe(ctx, host, number) })
			}
		})
	}
}

func (p *probes) sendProbe(ctx context.Context, host, number int) {
	result := probe{began: time.Now()}
	result.accepted = p.send(ctx, host, number)
	result.ended = time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byHost[host] = append(p.byHost[host], result)
	close(p.added)
	p.added = make(chan struct{})
}

// awaitAllAccepting waits until each ingress has accepted a request that was sent after the network
// healed. It returns, for each ingress, the time from the healing to the first such response, or 0
// if there was none before the timeout.
func (p *probes) awaitAllAccepting(
	ctx context.Context, healed time.Time, timeout time.Duration,
) []time.Duration {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		first, all, grown := p.recoveryTimes(healed)
		if all {
			return first
		}
		select {
		case <-ctx.Done():
			return first
		case <-grown:
		}
	}
}

func (p *probes) recoveryTimes(
	healed time.Time,
) (first []time.Duration, all bool, grown <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	first, all = make([]time.Duration, len(p.byHost)), true
	for host, answers := range p.byHost {
		for n := len(answers) - 1; n >= 0 && answers[n].ended.After(healed); n-- {
			if answers[n].accepted && answers[n].began.After(healed) {
				first[host] = answers[n].ended.Sub(healed)
			}
		}
		all = all && first[host] > 0
	}
	return first, all, p.added
}

// acceptedShare holds how many of all requests were accepted.
type acceptedShare struct{ accepted, all int }

func (s *acceptedShare) add(other acceptedShare) {
	s.accepted += other.accepted
	s.all += other.all
}

func (s acceptedShare) percent() float64 {
	if s.all == 0 {
		return 100 //nolint:mnd // none was refused
	}
	return 100 * float64(s.accepted) / float64(s.all) //nolint:mnd // percent
}

func (s acceptedShare) String() string {
	if s.all == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", s.percent())
}

func formatShares(each []acceptedShare) string {
	var texts []string
	for host, s := range each {
		texts = append(texts, hostNames[host]+" "+s.String())
	}
	return strings.Join(texts, ", ")
}

// acceptedShares returns, for each ingress, how many of the requests that were sent during a
// partition were accepted. within covers the first part of the partition, of length
// maxUnavailability, and after covers the rest. Requests that have not completed are not counted.
func (p *probes) acceptedShares(partition partitionRecord) (within, after []acceptedShare) {
	p.mu.Lock()
	defer p.mu.Unlock()
	within, after = make([]acceptedShare, len(p.byHost)), make([]acceptedShare, len(p.byHost))
	for host, answers := range p.byHost {
		for _, answer := range answers {
			if answer.began.Before(partition.from) || answer.began.After(partition.to) {
				continue
			}
			s := acceptedShare{all: 1}
			if answer.accepted {
				s.accepted = 1
			}
			if answer.began.Before(partition.from.Add(maxUnavailability)) {
				within[host].add(s)
			} else {
				after[host].add(s)
			}
		}
	}
	return within, after
}

// probesBetween returns the completed requests to an ingress that were sent at or after from and
// before to, sorted by the time they were sent.
func (p *probes) probesBetween(host int, from, to time.Time) (all []probe) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, answer := range p.byHost[host] {
		if !answer.began.Before(from) && answer.began.Before(to) {
			all = append(all, answer)
		}
	}
	slices.SortFunc(all, func(a, b probe) int { return a.began.Compare(b.began) })
	return all
}

func countAccepted(answers []probe) (s acceptedShare) {
	for _, answer := range answers {
		s.all++
		if answer.accepted {
			s.accepted++
		}
	}
	return s
}

// refusalSpan returns the length of the period in which requests were refused or not answered,
// or 0 if all were accepted. The period begins when the first refused request was sent, and ends
// when the request after the last refused one was sent. If no request was sent after the last
// refused one, the period ends when that one completed. answers must be sorted by the time at which
// the requests were sent.
func refusalSpan(answers []probe) time.Duration {
	refused := func(answer probe) bool { return !answer.accepted }
	first := slices.IndexFunc(answers, refused)
	if first < 0 {
		return 0
	}
	last := len(answers) - 1
	for !refused(answers[last]) {
		last--
	}
	if last+1 < len(answers) {
		return answers[last+1].began.Sub(answers[first].began)
	}
	return answers[last].ended.Sub(answers[first].began)
}

// quantile returns the shortest of the sorted durations that at least the given share of them do
// not exceed. With the share 0.99, it is the p99. quantile returns 0 if there are no durations. The
// share must be more than 0 and at most 1.
func quantile(sorted []time.Duration, share float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(math.Ceil(share*float64(len(sorted))))-1]
}

// formatP50AndP99 returns the p50 and the p99 of the durations in milliseconds, followed by the
// number of durations in parentheses.
func formatP50AndP99(all []time.Duration) string {
	sorted := slices.Sorted(slices.Values(all))
	return fmt.Sprintf("%s %s (%d)", formatMilliseconds(quantile(sorted, 0.50)), //nolint:mnd // p50
		formatMilliseconds(quantile(sorted, 0.99)), len(sorted)) //nolint:mnd // p99
}

// formatMilliseconds formats a duration in milliseconds with one decimal.
func formatMilliseconds(d time.Duration) string {
	return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', 1, 64)
}
