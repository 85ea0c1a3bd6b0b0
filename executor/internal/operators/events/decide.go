package events

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/registry"
)

// These limits keep a storm of causes, such as thousands of failures, from becoming a storm of
// events. They apply to each account and kind of event separately. Every cause gets its own event,
// unless this would make more than maxEventBurst events within eventBurstWindow. In that case, the
// causes share a single event. Once maxEventBurst events have been made within eventBurstWindow,
// each further one must wait until the previous one is at least eventGroupDelay old.
const (
	maxEventBurst    = 10
	eventBurstWindow = 10 * time.Minute
	eventGroupDelay  = time.Minute
)

// DefaultNodeID is the node ID of executions started by events if the workflow has no trigger node.
const DefaultNodeID = "events"

// ExecutionInput is the input of an execution started by an event.
type ExecutionInput struct {
	Kind        string    `json:"kind"`
	At          time.Time `json:"at"` // when the event's cause, or the last of its causes, happened
	AccountID   string    `json:"accountId"`
	WorkflowID  string    `json:"workflowId,omitempty"`
	ExecutionID string    `json:"executionId,omitempty"`
	Queue       string    `json:"queue,omitempty"`
	Count       int       `json:"count"` // the number of causes that the event reports
	Text        string    `json:"text"`
}

// turnCausesIntoEvents replaces stored causes with events, until no causes are left or all
// remaining ones must wait for a later event. Waiting causes do not delay the causes of other
// accounts and kinds, no matter how many are waiting.
func (e *Events) turnCausesIntoEvents(ctx context.Context) error {
	var waiting []store.CauseGroup
	for {
		if exist, err := e.config.Store.HasEventCauses(ctx); err != nil || !exist {
			return err
		}
		// Bring the index up to date. decideEvents drops causes of kinds that their account has
		// not selected. With an outdated index, it could drop causes of a kind that was just
		// selected.
		if err := e.config.EnsureRegistryIndexCurrent(ctx); err != nil {
			return err
		}
		full := false
		now := time.Now().UTC().Truncate(time.Microsecond)
		var wait []store.CauseGroup
		err := e.config.Store.DecideEvents(ctx, now, now.Add(-eventBurstWindow), waiting, func(
			causes []store.EventCause, decided []store.Event,
		) (events []store.Event, used []string) {
			events, used, wait = e.decideEvents(now, causes, decided)
			full = len(causes) == store.MaxCausesPerDecision && len(used)+len(wait) > 0
			return events, used
		})
		waiting = append(waiting, wait...)
		if err != nil || !full {
			return err
		}
	}
}

// decideEvents returns the new events that report the given causes. decided holds the events of the
// last eventBurstWindow. used holds the IDs of the causes that can be deleted, because a new event
// reports them or because no event ever will. waiting holds the account and kind of each group of
// causes that must wait.
func (e *Events) decideEvents(
	now time.Time, causes []store.EventCause, decided []store.Event,
) (events []store.Event, used []string, waiting []store.CauseGroup) {
	var groups []store.CauseGroup
	byGroup := map[store.CauseGroup][]store.EventCause{}
	for _, c := range causes {
		g := store.CauseGroup{AccountID: c.AccountID, Kind: c.Kind}
		setting := e.config.RegistryIndex.EventSubscription(c.AccountID)
		if !setting.Wants(c.Kind) || c.WorkflowID == setting.WorkflowID ||
			e.targetWorkflow(c.AccountID, setting) == nil {
			used = append(used, c.ID)
			continue
		}
		if byGroup[g] == nil {
			groups = append(groups, g)
		}
		byGroup[g] = append(byGroup[g], c)
	}
	for _, g := range groups {
		var last time.Time
		n := 0
		for _, d := range decided {
			if d.AccountID == g.AccountID && d.Kind == g.Kind {
				n, last = n+1, d.DecidedAt
			}
		}
		target := e.targetWorkflow(g.AccountID,
			e.config.RegistryIndex.EventSubscription(g.AccountID))
		if target == nil {
			continue // it was just deleted, or left the account; the next call drops the causes
		}
		parts := groupCauses(byGroup[g], n, now.Sub(last) >= eventGroupDelay)
		if parts == nil {
			waiting = append(waiting, g)
		}
		for _, causes := range parts {
			events = append(events, newEvent(now, causes, target))
			for _, c := range causes {
				used = append(used, c.ID)
			}
		}
	}
	return events, used, waiting
}

// groupCauses divides causes of one account and kind into groups, one for each event. recentEvents
// is the number of events of this account and kind that were decided within the last
// eventBurstWindow. delayElapsed reports whether the latest of these events is at least
// eventGroupDelay old. groupCauses returns nil if the causes must wait.
func groupCauses(
	causes []store.EventCause,
	recentEvents int,
	delayElapsed bool,
) [][]store.EventCause {
	switch {
	case recentEvents+len(causes) <= maxEventBurst:
		return slices.Collect(slices.Chunk(causes, 1))
	case recentEvents < maxEventBurst || delayElapsed:
		return [][]store.EventCause{causes}
	}
	return nil
}

// targetWorkflow returns the workflow that an account's events start. It returns nil if setting is
// nil, or if the account no longer has this workflow.
func (e *Events) targetWorkflow(
	accountID string, setting *registry.EventSubscription,
) *registry.Workflow {
	if setting == nil {
		return nil
	}
	w, ok := e.config.RegistryIndex.Workflow(setting.WorkflowID)
	if !ok || w.Record.AccountID != accountID {
		return nil
	}
	return w.Record
}

// encodeInput encodes an input as one line of JSON. The last field is "text", so that a script can
// cut out the text without a JSON parser.
func encodeInput(input ExecutionInput) string {
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(input); err != nil {
		panic(err) // strings, numbers and times always marshal
	}
	return strings.TrimSpace(text.String())
}

// newEvent returns the event that reports the given causes. All of them must have the same account
// and kind, and the oldest must come first. target is the workflow that the event starts.
func newEvent(now time.Time, causes []store.EventCause, target *registry.Workflow) store.Event {
	first, last := causes[0], causes[len(causes)-1]
	input := ExecutionInput{
		Kind:        last.Kind,
		At:          last.At,
		AccountID:   last.AccountID,
		WorkflowID:  last.WorkflowID,
		ExecutionID: last.ExecutionID,
		Queue:       last.Queue,
		Count:       len(causes),
		Text:        last.Text,
	}
	if len(causes) > 1 {
		input.Text = fmt.Sprintf("%d times since %s. The last one: %s", len(causes),
			first.At.UTC().Format(time.RFC3339), last.Text)
		for _, c := range causes {
			if c.WorkflowID != input.WorkflowID {
				input.WorkflowID, input.ExecutionID = "", "" // the causes concern several workflows
			}
			if c.Queue != input.Queue {
				input.Queue = ""
			}
		}
	}
	node := DefaultNodeID
	if len(target.Triggers) > 0 {
		node = target.Triggers[0].NodeID
	}
	return store.Event{
		ID:         eventID(causes),
		AccountID:  last.AccountID,
		Kind:       last.Kind,
		WorkflowID: target.ID,
		NodeID:     node,
		Input:      encodeInput(input),
		DecidedAt:  now,
	}
}

// eventID returns the ID of the event that reports causes. Different sets of causes have different
// IDs. After a failover, the database may have lost an event that was already published, and a
// later event may report some of its causes together with others. If both had the same ID, the
// later event would count as already published.
func eventID(causes []store.EventCause) string {
	if len(causes) == 1 {
		return causes[0].ID
	}
	hash := sha256.New()
	for _, c := range causes {
		_, _ = hash.Write([]byte(c.ID + "\n"))
	}
	return fmt.Sprintf("%s:group:%x", causes[0].Kind, hash.Sum(nil)[:16])
}
