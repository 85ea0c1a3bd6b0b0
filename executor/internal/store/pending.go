package store

import (
	"slices"

	"github.com/hookstart/hookstart/shared/execution"
)

// Bounds of the progress that is kept for executions that are not recorded yet. A report arrives
// seconds before its start, or as long before it as the starts of an outage take to be recorded.
// Older progress belongs to executions that never come.
const (
	// MaxPending is the number of steps of a few KB that are kept in all; a larger step counts as
	// several. Beyond it the oldest are dropped.
	MaxPending = 100_000
	// MaxPendingOfOne is the number of steps that are kept for one execution. A runner reports two;
	// further ones are dropped.
	MaxPendingOfOne = 8

	pendingUnit = 4 << 10
)

// PendingProgress is a step that is kept until its execution is recorded. Positions follow the
// order of arrival, and grow by the sizes of the steps.
type PendingProgress struct {
	Position int64
	execution.Progress
}

// PendingIDs returns the stored IDs of the steps whose record is not in the batch.
func PendingIDs(batch Batch) []string {
	ids := StepIDs(batch.Progress)
	own := make(map[string]bool, len(batch.New))
	for _, r := range batch.New {
		own[r.ID] = true
	}
	return slices.DeleteFunc(ids, func(id string) bool { return own[id] })
}

// NewIDs returns the IDs of the batch's records.
func NewIDs(records []Record) []string {
	ids := make([]string, len(records))
	for i, r := range records {
		ids[i] = r.ID
	}
	return ids
}

// Inserted returns the records whose IDs are in fresh, and removes the IDs from fresh. If two
// records have the same ID, it returns the first.
func Inserted(records []Record, fresh map[string]bool) (inserted []Record) {
	for _, r := range records {
		if fresh[r.ID] {
			inserted = append(inserted, r)
			delete(fresh, r.ID)
		}
	}
	return inserted
}

// Repeats returns the records that were not inserted, because their messages were delivered again.
// If two records have the same ID, that is the first.
func Repeats(records, inserted []Record) []Record {
	if len(records) == len(inserted) {
		return nil
	}
	seen := make(map[string]bool, len(records))
	for _, r := range inserted {
		seen[r.ID] = true
	}
	var again []Record
	for _, r := range records {
		if !seen[r.ID] {
			seen[r.ID] = true
			again = append(again, r)
		}
	}
	return again
}

// OrderSteps returns the steps to apply: the kept ones in the order of arrival, then the batch's
// own.
func OrderSteps(kept []PendingProgress, own []execution.Progress) []execution.Progress {
	if len(kept) == 0 {
		return own
	}
	slices.SortStableFunc(kept, func(a, b PendingProgress) int {
		return int(a.Position - b.Position)
	})
	steps := make([]execution.Progress, 0, len(kept)+len(own))
	for _, e := range kept {
		steps = append(steps, e.Progress)
	}
	return append(steps, own...)
}

// SelectPending returns the steps of unknown executions to keep in addition to the steps that are
// kept already (have, without their outputs). Those have positions up to last. dropped is the
// number of steps that are dropped because too many of their execution are kept. A step that is
// kept already, or that would change nothing however early it came, is neither kept nor dropped.
func SelectPending(
	steps []execution.Progress, unknown []string, have []PendingProgress, last int64,
) (keep []PendingProgress, dropped int) {
	missing := make(map[string]bool, len(unknown))
	for _, id := range unknown {
		missing[SanitizeText(id)] = true
	}
	type key struct {
		id, queue, workflowID string
		status                execution.Status
	}
	keyOf := func(p execution.Progress) key { return key{p.ID, p.Queue, p.WorkflowID, p.Status} }
	kept, number := map[key]bool{}, map[string]int{}
	for _, e := range have {
		kept[keyOf(e.Progress)] = true
		number[e.ID]++
	}
	for _, step := range steps {
		step.ID, step.Queue, step.WorkflowID = SanitizeText(step.ID), SanitizeText(step.Queue),
			SanitizeText(step.WorkflowID)
		if !missing[step.ID] || kept[keyOf(step)] || !step.Status.Follows(execution.Queued) {
			continue
		}
		if number[step.ID] >= MaxPendingOfOne {
			dropped++
			continue
		}
		kept[keyOf(step)] = true
		number[step.ID]++
		last += 1 + int64(len(step.Output)+len(step.Error))/pendingUnit
		keep = append(keep, PendingProgress{last, step})
	}
	return keep, dropped
}
