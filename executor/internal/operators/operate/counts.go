package operate

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

// ExecutionCounts counts the executions that were accepted within one interval.
type ExecutionCounts struct {
	IntervalStart           time.Time // the start of the interval
	Total, Failed, Rejected int64
}

// CountExecutions counts the executions that match a filter. It returns one ExecutionCounts for
// each of the last n intervals of the given length, oldest first. The last interval contains the
// current time.
//
// Total includes Failed and Rejected. It is read first, by a separate query, so Failed + Rejected
// may briefly exceed Total.
func (s *Service) CountExecutions(
	ctx context.Context, caller Caller, filter ExecutionFilter, n int, interval time.Duration,
) ([]ExecutionCounts, error) {
	return runRead(ctx, s, caller, newAccessRule("CountExecutions",
		narrowToCallerAccount(&filter.AccountID)),
		func(ctx context.Context) ([]ExecutionCounts, error) {
			wanted := filter
			wanted.Since = time.Now().UTC().Truncate(interval).Add(-time.Duration(n-1) * interval)
			activity := make([]ExecutionCounts, n)
			for i := range activity {
				activity[i].IntervalStart = wanted.Since.Add(time.Duration(i) * interval)
			}
			for _, part := range []struct {
				status execution.Status
				count  func(*ExecutionCounts) *int64
			}{
				{"", func(a *ExecutionCounts) *int64 { return &a.Total }},
				{execution.Failed, func(a *ExecutionCounts) *int64 { return &a.Failed }},
				{execution.Rejected, func(a *ExecutionCounts) *int64 { return &a.Rejected }},
			} {
				wanted.Status = part.status
				counts, err := s.config.Store.CountByTime(ctx, wanted, interval)
				if err != nil {
					return nil, err
				}
				for _, counted := range counts {
					if i := int(counted.At.Sub(wanted.Since) / interval); i >= 0 && i < n {
						*part.count(&activity[i]) = counted.Records
					}
				}
			}
			return activity, nil
		})
}

// The values of RequestCount.Outcome.
const (
	OutcomeAccepted     = store.KindAccepted
	OutcomeDeduplicated = store.KindDeduplicated
	OutcomeFiltered     = store.KindFiltered
	OutcomeRefused      = "refused"
)

// RequestCount counts the requests with one outcome within one minute.
type RequestCount struct {
	Minute  time.Time // the start of the minute
	Outcome string
	Code    string // the code of a refusal; "" for other outcomes
	Count   int64
}

// RequestCounts counts the requests of all accounts by minute, oldest first, starting with the
// minute that contains since.
func (s *Service) RequestCounts(
	ctx context.Context, caller Caller, since time.Time,
) ([]RequestCount, error) {
	return runRead(ctx, s, caller, newAccessRule("RequestCounts", accessToAllAccounts),
		func(ctx context.Context) ([]RequestCount, error) {
			counts, err := s.config.Store.MinuteCounts(ctx, since)
			if err != nil {
				return nil, err
			}
			requests := make([]RequestCount, len(counts))
			for i, n := range counts {
				requests[i] = RequestCount{Minute: n.Minute, Outcome: n.Kind, Count: n.Count}
				if code, refused := strings.CutPrefix(n.Kind, store.KindRefused); refused {
					requests[i].Outcome, requests[i].Code = OutcomeRefused, code
				}
			}
			return requests, nil
		})
}

// InstallationStatus describes the installation as a whole, for an overview.
type InstallationStatus struct {
	PublicURL string // without a trailing slash; "" if not configured
	Ingresses int    // number of live ingresses
	// Unrecorded is the number of stream messages that are not recorded yet. nil means that NATS
	// did not respond, or that the caller has access to a single account only.
	Unrecorded *int64
}

// countUnrecordedTimeout is the timeout for counting the messages that are not recorded yet.
const countUnrecordedTimeout = time.Second

// Installation returns the current state of the installation. It does not fail if NATS does not
// respond: Unrecorded is then nil.
func (s *Service) Installation(ctx context.Context, caller Caller) (InstallationStatus, error) {
	return runRead(ctx, s, caller, newAccessRule("Installation", accessUnrestricted),
		func(ctx context.Context) (InstallationStatus, error) {
			now := InstallationStatus{
				PublicURL: s.config.Reachability.URL(),
				Ingresses: len(s.config.Membership.IngressSettings()),
			}
			if caller.AccountID != "" {
				return now, nil
			}
			ctx, cancel := context.WithTimeout(ctx, countUnrecordedTimeout)
			defer cancel()
			now.Unrecorded = s.countUnrecorded(ctx)
			return now, nil
		})
}

// countUnrecorded returns the number of start messages that are not recorded yet, or nil if NATS
// did not respond. The number may be slightly out of date.
func (s *Service) countUnrecorded(ctx context.Context) *int64 {
	names, _, err := stream.StreamNames(ctx, s.config.JetStream)
	if err != nil {
		return nil
	}
	waiting := int64(0)
	for _, name := range names {
		consumer, err := s.config.JetStream.Consumer(ctx, name, s.config.RecorderConsumer)
		if errors.Is(err, jetstream.ErrConsumerNotFound) ||
			errors.Is(err, jetstream.ErrStreamNotFound) {
			continue // the stream or its consumer was just created or deleted
		}
		if err != nil {
			return nil
		}
		waiting += stream.Unacknowledged(consumer.CachedInfo())
	}
	return &waiting
}
