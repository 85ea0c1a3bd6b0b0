package events

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/registry"
)

// These constants bound the number of events in a storm. The first burst causes of one account and
// kind within window make one event each. Further ones wait for up to pause, and then make one
// event together.
const (
	burst  = 10
	window = 10 * time.Minute
	pause  = time.Minute
)

// NodeID is the node of executions of a workflow that has no trigger node.
const NodeID = "events"

// Input is the input of an execution that an event starts.
type Input struct {
	Kind        string    `json:"kind"`
	At          time.Time `json:"at"` // when it happened; of several causes, the last one
	AccountID   string    `json:"accountId"`
	WorkflowID  string    `json:"workflowId,omitempty"`
	ExecutionID string    `json:"executionId,omitempty"`
	Queue       string    `json:"queue,omitempty"`
	Count       int       `json:"count"` // the number of causes of the event
	Text        string    `json:"text"`
}

// decideAll replaces causes by events, until the remaining causes have to wait.
func (e *Events) decideAll(ctx context.Context) error {
	for {
		if waiting, err := e.config.Store.HasEventCauses(ctx); err != nil || !waiting {
			return err
		}
		// A directory that lacks a change would leave causes out.
		if err := e.config.Current(ctx); err != nil {
			return err
		}
		full := false
		now := time.Now().UTC().Truncate(time.Microsecond)
		err := e.config.Store.DecideEvents(ctx, now, now.Add(-window), func(
			causes []store.EventCause, decided []store.Event,
		) ([]store.Event, []string) {
			events, used := e.decide(now, causes, decided)
			full = len(causes) == store.MaxEventCauses && len(used) > 0
			return events, used
		})
		if err != nil || !full {
			return err
		}
	}
}

// group is an account and a kind.
type group struct{ accountID, kind string }

// decide returns the events for causes, and the IDs of the causes that need not wait any longer.
// decided holds the events of the last window.
func (e *Events) decide(
	now time.Time, causes []store.EventCause, decided []store.Event,
) (events []store.Event, used []string) {
	var groups []group
	waiting := map[group][]store.EventCause{}
	for _, c := range causes {
		g := group{c.AccountID, c.Kind}
		setting := e.config.Directory.Events(c.AccountID)
		if !setting.Wants(c.Kind) || c.WorkflowID == setting.WorkflowID ||
			e.targetWorkflow(c.AccountID, setting) == nil {
			used = append(used, c.ID)
			continue
		}
		if waiting[g] == nil {
			groups = append(groups, g)
		}
		waiting[g] = append(waiting[g], c)
	}
	for _, g := range groups {
		var last time.Time
		n := 0
		for _, d := range decided {
			if (group{d.AccountID, d.Kind}) == g {
				n, last = n+1, d.DecidedAt
			}
		}
		target := e.targetWorkflow(g.accountID, e.config.Directory.Events(g.accountID))
		if target == nil {
			continue // it was deleted just now: the next turn leaves the causes out
		}
		for _, causes := range groupCauses(waiting[g], n, now.Sub(last) >= pause) {
			events = append(events, eventOf(now, causes, target))
			for _, c := range causes {
				used = append(used, c.ID)
			}
		}
	}
	return events, used
}

// groupCauses divides causes into groups; each group makes one event. n is the number of events of
// the last window, and rested reports whether none was decided for a while.
func groupCauses(causes []store.EventCause, n int, rested bool) [][]store.EventCause {
	switch {
	case n+len(causes) <= burst:
		return slices.Collect(slices.Chunk(causes, 1))
	case n < burst || rested:
		return [][]store.EventCause{causes}
	}
	return nil
}

// targetWorkflow returns the workflow that an account's events start, or nil if it does not belong
// to the account any more.
func (e *Events) targetWorkflow(
	accountID string, setting *registry.OperatorEvents,
) *registry.Workflow {
	if setting == nil {
		return nil
	}
	w, ok := e.config.Directory.Workflow(setting.WorkflowID)
	if !ok || w.Record.AccountID != accountID {
		return nil
	}
	return w.Record
}

// textOf returns the JSON of an input on one line, with its text last: scripts without a JSON
// parser read it.
func textOf(input Input) string {
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(input); err != nil {
		panic(err) // texts, numbers and times can always be marshalled
	}
	return strings.TrimSpace(text.String())
}

// eventOf returns the event for causes, oldest first, of one account and kind.
func eventOf(now time.Time, causes []store.EventCause, target *registry.Workflow) store.Event {
	first, last := causes[0], causes[len(causes)-1]
	input := Input{
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
				input.WorkflowID, input.ExecutionID = "", "" // it is about several workflows
			}
			if c.Queue != input.Queue {
				input.Queue = ""
			}
		}
	}
	node := NodeID
	if len(target.Triggers) > 0 {
		node = target.Triggers[0].NodeID
	}
	return store.Event{
		ID:         first.ID,
		AccountID:  last.AccountID,
		Kind:       last.Kind,
		WorkflowID: target.ID,
		NodeID:     node,
		Input:      textOf(input),
		DecidedAt:  now,
	}
}
