package recorder

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/stream"
)

// heartbeatInterval is how often NATS sends heartbeats while ApplyIngressReports waits for a
// report.
const heartbeatInterval = 5 * time.Second

// ApplyIngressReports applies the reports that ingresses send, such as counts of refused requests,
// until the context is done.
func (r *Recorder) ApplyIngressReports(ctx context.Context) {
	r.consumeWithRetry(ctx, "the recorder of reports", r.consumeIngressReports)
}

func (r *Recorder) consumeIngressReports(ctx context.Context) error {
	consumer, err := r.js.CreateOrUpdateConsumer(ctx, stream.ReportsName, jetstream.ConsumerConfig{
		Durable:       stream.RecorderConsumerName,
		Description:   "hookstart: the executors apply every report",
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       ackWait,
		DeliverPolicy: jetstream.DeliverAllPolicy,
	})
	if err != nil {
		return fmt.Errorf("consumer %s of reports: %w", stream.RecorderConsumerName, err)
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(100),
		jetstream.PullHeartbeat(r.timings.heartbeatInterval))
	if err != nil {
		return fmt.Errorf("consumer %s of reports: %w", stream.RecorderConsumerName, err)
	}
	defer context.AfterFunc(ctx, messages.Stop)()
	defer messages.Stop()
	for {
		msg, err := stream.NextWhileConsumerExists(ctx, consumer, messages)
		if err != nil {
			return err
		}
		r.applyIngressReport(ctx, msg)
	}
}

// errRegistryUnavailable means that a report cannot be applied yet because the registry is
// unavailable. It does not count as a failure of the database.
var errRegistryUnavailable = errors.New("the registry could not be read or changed")

// applyIngressReport applies a report and acknowledges it. It retries while the database or the
// registry is unavailable, until the context is done. If the report cannot be decoded, or the
// database has refused it several times, it discards the report.
func (r *Recorder) applyIngressReport(ctx context.Context, msg jetstream.Msg) {
	var lastLogged time.Time
	for failures := 0; ; failures++ {
		err := r.tryApplyIngressReport(ctx, msg)
		switch {
		case err == nil:
			r.databaseHealth.noteSuccess(reportsLoop)
			// If the acknowledgement is lost, the report is redelivered and changes nothing.
			_ = msg.Ack()
			return
		case ctx.Err() != nil:
			return // the report is redelivered
		case errors.Is(err, stream.ErrUnreadable):
			r.log.WithError(err).Error("a report cannot be read; it is left out")
			_ = msg.TermWithReason(err.Error())
			return
		case errors.Is(err, errRegistryUnavailable):
			if time.Since(lastLogged) >= logInterval {
				lastLogged = time.Now()
				r.log.WithError(err).Warn("could not apply a report; retrying")
			}
			retry.Sleep(ctx, backoff(failures))
			continue
		case store.IsDataError(err) && numDeliveries(msg) < minPoisonTries:
			r.databaseHealth.noteSuccess(reportsLoop)
			_ = msg.NakWithDelay(r.timings.poisonRetryDelay)
			return
		case store.IsDataError(err):
			r.databaseHealth.noteSuccess(reportsLoop)
			r.metrics.refusedMessages.Inc()
			r.log.WithError(err).Error("the database refuses a report; it is left out")
			_ = msg.TermWithReason("refused by the database")
			return
		}
		r.databaseHealth.noteFailure(reportsLoop, err)
		retry.Sleep(ctx, backoff(failures))
	}
}

func (r *Recorder) tryApplyIngressReport(ctx context.Context, msg jetstream.Msg) error {
	ctx, cancel := context.WithTimeout(ctx, r.timings.applyTimeout)
	defer cancel()
	switch msg.Subject() {
	case stream.RefusalsSubject:
		return r.applyRefusals(ctx, msg.Data())
	case stream.SendersSubject:
		return r.applySenderReport(ctx, msg.Data())
	case stream.FilteredSubject:
		return r.applyFilteredReport(ctx, msg.Data())
	default:
		// The only remaining subject is DuplicatesSubject, for counts of suppressed duplicates.
		return r.applyDuplicates(ctx, msg.Data())
	}
}

func (r *Recorder) applyFilteredReport(ctx context.Context, data []byte) error {
	id, at, nodes, err := stream.DecodeFiltered(data)
	if err != nil {
		return err
	}
	filtered := make([]store.FilteredSummary, 0, len(nodes))
	for _, n := range nodes {
		since, ok, err := r.workflowInAccountSince(ctx, n.WorkflowID)
		if err != nil {
			return err
		}
		node := store.FilteredSummary{WorkflowID: n.WorkflowID, NodeID: n.NodeID, Count: n.Count}
		for _, request := range n.Last {
			if !request.At.Before(since) {
				node.Last = append(node.Last, store.FilteredRequest(request))
			}
		}
		if late := len(n.Last) > 0 && len(node.Last) == 0; ok && !late {
			filtered = append(filtered, node)
		}
	}
	return r.store.AddFilteredRequests(ctx, id, at, filtered)
}

func (r *Recorder) applySenderReport(ctx context.Context, data []byte) error {
	id, at, reported, err := stream.DecodeSenders(data)
	if err != nil {
		return err
	}
	seen := make([]store.SenderActivity, 0, len(reported))
	for _, s := range reported {
		last := slices.MaxFunc([]time.Time{s.VerifiedAt, s.HandshakeAt, s.RefusedAt},
			time.Time.Compare)
		if last.IsZero() {
			last = at
		}
		if late, err := r.isStaleObservation(ctx, s.WorkflowID, last); err != nil {
			return err
		} else if late {
			continue
		}
		if late, err := r.isFromReplacedSender(ctx, s); err != nil {
			return fmt.Errorf("%w: %w", errRegistryUnavailable, err)
		} else if late {
			continue
		}
		// Store the secrets before the report. If the report then fails, it is redelivered, and
		// storing the secrets again changes nothing. In the opposite order, a redelivered report
		// would be skipped as already applied, and secrets that could not be stored would be lost.
		if len(s.Captured) > 0 && r.config.SaveCapturedSecret != nil {
			if err := r.config.SaveCapturedSecret(ctx, s.WorkflowID, s.NodeID,
				s.Captured); err != nil {
				return fmt.Errorf("%w: %w", errRegistryUnavailable, err)
			}
		}
		seen = append(seen, store.SenderActivity{
			WorkflowID:    s.WorkflowID,
			NodeID:        s.NodeID,
			VerifiedAt:    s.VerifiedAt,
			HandshakeAt:   s.HandshakeAt,
			RefusedAt:     s.RefusedAt,
			RefusedCode:   s.RefusedCode,
			RefusedReason: s.RefusedReason,
			Deliveries:    s.Deliveries,
			WithoutID:     s.WithoutID,
			Refused:       s.Refused,
		})
	}
	return r.store.AddSenderActivity(ctx, id, at, seen)
}

// workflowInAccountSince calls Config.WorkflowInAccountSince. If that function is nil, it returns
// the zero time and true. It returns an error while the registry is unavailable, so that the report
// waits: the current account must not see observations from the workflow's time in another account.
func (r *Recorder) workflowInAccountSince(
	ctx context.Context, id string,
) (at time.Time, ok bool, err error) {
	if r.config.WorkflowInAccountSince == nil {
		return at, true, nil
	}
	if at, ok, err = r.config.WorkflowInAccountSince(ctx, id); err != nil {
		err = fmt.Errorf("%w: %w", errRegistryUnavailable, err)
	}
	return at, ok, err
}

// isStaleObservation reports whether an observation must be ignored: because the workflow does
// not exist, or because the observation was made before the workflow was created or moved to its
// current account.
func (r *Recorder) isStaleObservation(
	ctx context.Context, id string, observed time.Time,
) (bool, error) {
	since, ok, err := r.workflowInAccountSince(ctx, id)
	return !ok || observed.Before(since), err
}

// isFromReplacedSender reports whether an observation must be ignored because it concerns a sender
// that the node no longer has.
func (r *Recorder) isFromReplacedSender(
	ctx context.Context,
	s stream.SenderActivity,
) (bool, error) {
	if r.config.SenderPreset == nil {
		return false, nil
	}
	now, err := r.config.SenderPreset(ctx, s.WorkflowID, s.NodeID)
	return now != s.Preset, err
}

func (r *Recorder) applyDuplicates(ctx context.Context, data []byte) error {
	id, at, counts, err := stream.DecodeDuplicates(data)
	if err != nil {
		return err
	}
	if err := r.store.AddDuplicates(ctx, id, at, counts); err != nil {
		return err
	}
	if err := r.changes.Publish(slices.Collect(maps.Keys(counts))); err != nil {
		r.log.WithError(err).Debug("watchers were not told of changes")
	}
	return nil
}

func (r *Recorder) applyRefusals(ctx context.Context, data []byte) error {
	id, at, counts, err := stream.DecodeRefusals(data)
	if err != nil {
		return err
	}
	refusals := make([]store.RefusalCount, len(counts))
	for i, c := range counts {
		if c.WorkflowID != "" {
			late, err := r.isStaleObservation(ctx, c.WorkflowID, c.Last.At)
			if err != nil {
				return err
			}
			if late {
				c.WorkflowID = "" // count it as a refusal without a workflow
			}
		}
		refusals[i] = store.RefusalCount{
			WorkflowID: c.WorkflowID, Code: c.Code, Minute: c.Minute, Count: c.Count,
			Last: store.RefusedRequest{
				At:        c.Last.At,
				BodyBytes: c.Last.BodyBytes,
				UserAgent: c.Last.UserAgent,
			},
		}
	}
	return r.store.AddRefusals(ctx, id, at, refusals)
}

func numDeliveries(msg jetstream.Msg) uint64 {
	meta, err := msg.Metadata()
	if err != nil {
		return 0
	}
	return meta.NumDelivered
}
