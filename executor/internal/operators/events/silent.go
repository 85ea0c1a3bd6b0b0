package events

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/registry"
)

// A trigger node is silent if it has received no request for a certain time. The account can set
// this time as SilentAfter. If it does not, the time is silenceFactor times the longest pause
// between two requests within paceWindow, but at least minSilence. In this case, a node with fewer
// than minRequestsForPace requests within paceWindow is never silent. Pauses are measured with the
// resolution paceResolution.
//
// tokenQueryBatchSize is the maximum number of tokens in one query to the store.
const (
	paceWindow          = 7 * 24 * time.Hour
	paceResolution      = 5 * time.Minute
	minSilence          = 10 * time.Minute
	minRequestsForPace  = 10
	silenceFactor       = 2
	tokenQueryBatchSize = 500
)

// requestPace is the usual pace of the requests to a node, as of the last request.
type requestPace struct {
	lastRequestAt time.Time     // the time of the last request
	longestGap    time.Duration // between two requests; 0 if there were too few requests
}

// silenceStates returns the states of the trigger nodes of active workflows, by subject. It leaves
// out nodes whose tokens were never used.
func (e *Events) silenceStates(
	ctx context.Context, now time.Time, setting *registry.EventSubscription,
	workflows []*registry.Workflow, open []store.OngoingCondition,
) (map[string]conditionState, error) {
	lasts, err := e.lastRequestTimes(ctx, workflows)
	if err != nil {
		return nil, err
	}
	began := map[string]time.Time{}
	for _, c := range open {
		if c.Kind == registry.EventSenderSilent {
			began[c.Subject] = c.Since
		}
	}
	found := map[string]conditionState{}
	for _, w := range workflows {
		if !w.Active {
			continue
		}
		for _, node := range w.Triggers {
			subject := conditionSubjectOfTrigger(w.ID, node.NodeID)
			last := lasts[subject]
			if last.IsZero() {
				continue // its tokens were never used
			}
			state, err := e.silenceState(ctx, now, setting, w, node.NodeID, last)
			if err == nil && state.health == healthBad {
				// last covers only requests that have an execution record. If the node has since
				// received a request that started nothing, such as a filtered one, it is not silent
				// either.
				other, failed := e.lastRequestWithoutStart(ctx, w.ID, node.NodeID)
				if failed != nil {
					err = failed
				} else if other.After(last) {
					last = other
					state, err = e.silenceState(ctx, now, setting, w, node.NodeID, last)
				}
			}
			if err != nil {
				return nil, err
			}
			if since, ok := began[subject]; ok && !last.After(since) && state.health == healthGood {
				state.health = healthUnknown // the pace has changed, but no request came
			}
			found[subject] = state
		}
	}
	return found, nil
}

// silenceState returns the state of one node: healthBad if the node is silent, and healthGood
// otherwise. last is the time of the node's last request. Time before the workflow's activation
// does not count as silence.
func (e *Events) silenceState(
	ctx context.Context, now time.Time, setting *registry.EventSubscription, w *registry.Workflow,
	nodeID string, last time.Time,
) (state conditionState, err error) {
	state = conditionState{
		health:     healthGood,
		workflowID: w.ID,
		goodText: fmt.Sprintf("Node %s of workflow %s gets requests again: one came at %s.",
			nodeID, w.ID, formatTime(last)),
	}
	from := last
	if w.ActivatedAt.After(from) {
		from = w.ActivatedAt // the workflow was inactive before
	}
	silence := now.Sub(from)
	if after := setting.SilentAfter; after > 0 {
		if silence >= after {
			state.health = healthBad
			state.badText = fmt.Sprintf("Node %s of workflow %s has had no request since %s. It "+
				"is to be told after %s.", nodeID, w.ID, formatTime(last), after)
		}
		return state, nil
	}
	if silence < minSilence {
		return state, nil
	}
	usual, err := e.usualPace(ctx, w, nodeID, last)
	if err != nil {
		return state, err
	}
	if usual.longestGap > 0 && silence >= silenceFactor*usual.longestGap {
		state.health = healthBad
		state.badText = fmt.Sprintf("Node %s of workflow %s has had no request since %s. The "+
			"longest pause of the 7 days before was about %s.",
			nodeID, w.ID, formatTime(last), usual.longestGap)
	}
	return state, nil
}

// lastRequestTimes returns when each node's tokens were last used, by subject. It has no entry for
// a node whose tokens were never used.
func (e *Events) lastRequestTimes(
	ctx context.Context, workflows []*registry.Workflow,
) (map[string]time.Time, error) {
	lasts := map[string]time.Time{}
	subjects := map[string]string{} // by token
	var tokens []string
	ask := func() error {
		used, err := e.config.Store.TokensLastUsed(ctx, tokens)
		for token, at := range used {
			if subject := subjects[token]; at.After(lasts[subject]) {
				lasts[subject] = at
			}
		}
		tokens = tokens[:0]
		return err
	}
	for _, w := range workflows {
		for _, node := range w.Triggers {
			for _, token := range node.Tokens {
				id := token.Hash.ID()
				subjects[id] = conditionSubjectOfTrigger(w.ID, node.NodeID)
				if tokens = append(tokens, id); len(tokens) == tokenQueryBatchSize {
					if err := ask(); err != nil {
						return nil, err
					}
				}
			}
		}
	}
	if len(tokens) == 0 {
		return lasts, nil
	}
	return lasts, ask()
}

// lastRequestWithoutStart returns when a node last received a request that started nothing: it did
// not match the filter, was refused, or was a handshake or a duplicate.
func (e *Events) lastRequestWithoutStart(
	ctx context.Context, workflowID, nodeID string,
) (last time.Time, err error) {
	filtered, err := e.config.Store.FilteredSummary(ctx, workflowID, nodeID)
	if err != nil {
		return last, err
	}
	seen, err := e.config.Store.SenderActivity(ctx, workflowID, nodeID)
	if err != nil {
		return last, err
	}
	times := []time.Time{seen.VerifiedAt, seen.RefusedAt, seen.HandshakeAt}
	if len(filtered.Last) > 0 {
		times = append(times, filtered.Last[0].At)
	}
	return slices.MaxFunc(times, time.Time.Compare), nil
}

// usualPace returns the usual pace of a node up to its last request. It caches the result until the
// next request.
func (e *Events) usualPace(
	ctx context.Context, w *registry.Workflow, nodeID string, last time.Time,
) (requestPace, error) {
	subject := conditionSubjectOfTrigger(w.ID, nodeID)
	if known, ok := e.paceByTrigger[subject]; ok && known.lastRequestAt.Equal(last) {
		return known, nil
	}
	counts, err := e.config.Store.CountByTime(ctx, store.RecordFilter{
		AccountID:  w.AccountID,
		WorkflowID: w.ID,
		NodeID:     nodeID,
		Source:     execution.SourceWebhook,
		Since:      last.Add(-paceWindow),
		Until:      last.Add(time.Microsecond),
	}, paceResolution)
	if err != nil {
		return requestPace{}, err
	}
	p := requestPace{lastRequestAt: last, longestGap: longestGap(counts)}
	e.paceByTrigger[subject] = p
	return p, nil
}

// longestGap returns the longest pause between two requests, to a precision of paceResolution.
// counts holds the number of requests in each interval. If there were fewer than minRequestsForPace
// requests, longestGap returns 0.
func longestGap(counts []store.IntervalCount) (longest time.Duration) {
	n := int64(0)
	for i, c := range counts {
		n += c.Records
		longest = max(longest, paceResolution)
		if i > 0 {
			longest = max(longest, c.At.Sub(counts[i-1].At))
		}
	}
	if n < minRequestsForPace {
		return 0
	}
	return longest
}
