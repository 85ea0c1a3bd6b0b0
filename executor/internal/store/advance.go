package store

import (
	"slices"
	"strings"
	"time"

	"github.com/hookstart/hookstart/shared/execution"
)

// StateUpdate is the combined change that a batch's progress steps make to one record. A zero field
// does not change the record. A record that already has a StartedAt keeps it.
type StateUpdate struct {
	ID         string
	Status     execution.Status
	StartedAt  time.Time // when the handler of the first attempt began
	FinishedAt time.Time // set with a final status only
	Error      string    // why the execution failed
	Output     []byte    // the handler's return value as JSON; set only if it succeeded
	Attempts   int       // the highest attempt number reported by a runner
	CanceledAt time.Time // when it was canceled; zero if it was not
}

// ProgressExecutionIDs returns the execution IDs that occur in steps, sanitized (see SanitizeText),
// sorted and without duplicates.
func ProgressExecutionIDs(steps []execution.Progress) []string {
	ids := make([]string, len(steps))
	for i, step := range steps {
		ids[i] = SanitizeText(step.ID)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// CurrentState holds the fields of a record that determine the effect of the next progress step.
type CurrentState struct {
	Status     execution.Status
	AccountID  string
	Queue      string
	WorkflowID string
	Attempts   int // the highest attempt number recorded; 0 means none
}

// ComputeStateUpdates applies progress steps, in their order and by the rules of Batch.Progress, to
// the current states of the records, which are keyed by execution ID. updates holds one update for
// each record that changes, unknown the IDs of executions that have no record, and foreign the IDs
// of executions whose record has another queue or workflow than the step; none of the three holds
// an ID twice. The drivers call ComputeStateUpdates in their transaction, with the records locked,
// so that the rules are implemented only once.
func ComputeStateUpdates(
	current map[string]CurrentState, steps []execution.Progress,
) (updates []StateUpdate, unknown, foreign []string) {
	moving := make(map[string]*StateUpdate)
	missing, alien := make(map[string]bool), make(map[string]bool)
	for _, step := range steps {
		id := SanitizeText(step.ID)
		record, recorded := current[id]
		if !recorded {
			if !missing[step.ID] {
				missing[step.ID] = true
				unknown = append(unknown, step.ID)
			}
			continue
		}
		if step.Queue != record.Queue || step.WorkflowID != record.WorkflowID {
			if !alien[step.ID] {
				alien[step.ID] = true
				foreign = append(foreign, step.ID)
			}
			continue
		}
		state, move := record.Status, moving[id]
		if move != nil {
			state = move.Status
		}
		attempts := record.Attempts
		if move != nil {
			attempts = max(attempts, move.Attempts)
		}
		again := step.Status == execution.Running && state == execution.Running &&
			step.Attempt > attempts
		if !step.Status.Follows(state) && !again {
			continue
		}
		if move == nil {
			move = &StateUpdate{ID: id}
			moving[id] = move
		}
		move.apply(step)
	}
	for _, move := range moving {
		updates = append(updates, *move)
	}
	slices.SortFunc(updates, func(a, b StateUpdate) int { return strings.Compare(a.ID, b.ID) })
	return updates, unknown, foreign
}

func (m *StateUpdate) apply(step execution.Progress) {
	m.Status, m.Attempts = step.Status, max(m.Attempts, step.Attempt)
	switch step.Status {
	case execution.Running:
		if m.StartedAt.IsZero() { // StartedAt is the start of the first attempt
			m.StartedAt = step.At
		}
	case execution.Succeeded:
		m.FinishedAt = step.At
		m.setStartedAt(step)
		if len(step.Output) > 0 {
			m.Output = step.Output
		}
	case execution.Failed:
		m.FinishedAt = step.At
		m.setStartedAt(step)
		m.Error = step.Error
	case execution.Canceled:
		m.FinishedAt, m.CanceledAt = step.At, step.At
		m.setStartedAt(step)
		m.Error = step.Error
	case execution.Queued, execution.Rejected: // never the status of a step
	}
}

// setStartedAt sets StartedAt to the start time in a final progress step, unless an earlier step
// has set it.
func (m *StateUpdate) setStartedAt(step execution.Progress) {
	if m.StartedAt.IsZero() {
		m.StartedAt = step.StartedAt
	}
}

// ChangedIDs returns the IDs of the records that a batch inserted or changed, each once, for
// ApplyResult.ChangedIDs.
func ChangedIDs(inserted []Record, updates []StateUpdate) []string {
	ids := make([]string, 0, len(inserted)+len(updates))
	for _, r := range inserted {
		ids = append(ids, r.ID)
	}
	for _, m := range updates {
		ids = append(ids, m.ID)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
