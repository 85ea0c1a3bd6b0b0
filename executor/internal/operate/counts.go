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

// Activity holds the numbers of executions that were accepted in one step of time.
type Activity struct {
	At                      time.Time // the step's beginning
	Total, Failed, Rejected int64
}

// Activity counts the executions of a filter in the last steps, up to now, the oldest first. Failed
// and Rejected are part of Total, but are counted after it, so an execution may have changed its
// state in between.
func (s *Service) Activity(
	ctx context.Context, caller Caller, filter ExecutionFilter, steps int, step time.Duration,
) ([]Activity, error) {
	return read(ctx, s, caller, needs(Viewer, within(&filter.AccountID)),
		func(ctx context.Context) ([]Activity, error) {
			wanted := filter
			wanted.Since = time.Now().UTC().Truncate(step).Add(-time.Duration(steps-1) * step)
			activity := make([]Activity, steps)
			for i := range activity {
				activity[i].At = wanted.Since.Add(time.Duration(i) * step)
			}
			for _, part := range []struct {
				status execution.Status
				count  func(*Activity) *int64
			}{
				{"", func(a *Activity) *int64 { return &a.Total }},
				{execution.Failed, func(a *Activity) *int64 { return &a.Failed }},
				{execution.Rejected, func(a *Activity) *int64 { return &a.Rejected }},
			} {
				wanted.Status = part.status
				counts, err := s.config.Store.CountByTime(ctx, wanted, step)
				if err != nil {
					return nil, err
				}
				for _, n := range counts {
					if i := int(n.At.Sub(wanted.Since) / step); i >= 0 && i < steps {
						*part.count(&activity[i]) = n.Records
					}
				}
			}
			return activity, nil
		})
}

// These are the outcomes of requests.
const (
	Accepted     = store.KindAccepted
	Deduplicated = store.KindDeduplicated
	Refused      = "refused"
)

// RequestCount is the number of requests with one outcome within one minute.
type RequestCount struct {
	Minute  time.Time // the beginning of the minute
	Outcome string
	Code    string // code of the refusal
	Count   int64
}

// Requests counts all requests, of all accounts, since the minute of a time, the oldest first.
func (s *Service) Requests(
	ctx context.Context, caller Caller, since time.Time,
) ([]RequestCount, error) {
	return read(ctx, s, caller, needs(Viewer, ofAll),
		func(ctx context.Context) ([]RequestCount, error) {
			counts, err := s.config.Store.Minutes(ctx, since)
			if err != nil {
				return nil, err
			}
			requests := make([]RequestCount, len(counts))
			for i, n := range counts {
				requests[i] = RequestCount{Minute: n.Minute, Outcome: n.Kind, Count: n.Count}
				if code, refused := strings.CutPrefix(n.Kind, store.KindRefused); refused {
					requests[i].Outcome, requests[i].Code = Refused, code
				}
			}
			return requests, nil
		})
}

// Installation is the state of the installation as a whole.
type Installation struct {
	PublicURL string // without a trailing slash; "" means that it is not configured
	Ingresses int    // number of live ingresses
	// Unrecorded is the number of messages of the stream that have no record yet. nil means that
	// NATS did not answer, or that the caller sees one account only.
	Unrecorded *int64
}

// unrecordedTimeout is the maximum duration of the request for the number of messages that are not
// recorded yet.
const unrecordedTimeout = time.Second

// Installation returns the current state of the installation.
func (s *Service) Installation(ctx context.Context, caller Caller) (Installation, error) {
	return read(ctx, s, caller, needs(Viewer, ofNone),
		func(ctx context.Context) (Installation, error) {
			now := Installation{
				PublicURL: s.config.Reach.URL(),
				Ingresses: len(s.config.Membership.Ingress()),
			}
			if caller.AccountID != "" {
				return now, nil
			}
			ctx, cancel := context.WithTimeout(ctx, unrecordedTimeout)
			defer cancel()
			now.Unrecorded = s.unrecorded(ctx)
			return now, nil
		})
}

// unrecorded returns the number of messages of the streams of starts that have no record yet, or
// nil if NATS did not answer. It may be a moment old.
func (s *Service) unrecorded(ctx context.Context) *int64 {
	names, _, err := stream.Streams(ctx, s.config.JetStream)
	if err != nil {
		return nil
	}
	waiting := int64(0)
	for _, name := range names {
		consumer, err := s.config.JetStream.Consumer(ctx, name, s.config.Consumer)
		if errors.Is(err, jetstream.ErrConsumerNotFound) ||
			errors.Is(err, jetstream.ErrStreamNotFound) {
			continue // it was just created, or deleted
		}
		if err != nil {
			return nil
		}
		info := consumer.CachedInfo()
		//nolint:gosec // messages in a stream are fewer than 2^63
		waiting += int64(info.NumPending) + int64(info.NumAckPending)
	}
	return &waiting
}
