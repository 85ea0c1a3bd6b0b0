package store

import (
	"slices"

	"github.com/hookstart/hookstart/shared/execution"
)

// Limits of pending progress, that is, progress of executions that are not recorded yet. Usually, a
// report arrives only seconds before its start message is recorded. After an outage, it may arrive
// much earlier, because the start messages that have accumulated must be recorded first. Progress
// that is pending for even longer belongs to executions whose start message never arrives.
const (
	// MaxPendingSteps is the maximum number of pending steps that are kept in total. It assumes
	// steps of a few KB, so a larger step counts as several. Beyond the limit, the oldest steps are
	// dropped.
	MaxPendingSteps = 100_000
	// MaxPendingStepsPerExecution is the maximum number of pending steps that are kept for one
	// execution. A runner reports only two steps per execution. Beyond the limit, new steps are
	// dropped.
	MaxPendingStepsPerExecution = 8

	bytesPerPendingStep = 4 << 10
)

// PendingProgress is a progress step that is kept until its execution is recorded. Positions
// increase in the order of arrival. A large step takes up several positions, because it counts as
// several of MaxPendingSteps.
type PendingProgress struct {
	Position int64
	execution.Progress
}

// UnmatchedProgressExecutionIDs returns, in stored form, the execution IDs that occur in
// batch.Progress but not in batch.NewRecords.
func UnmatchedProgressExecutionIDs(batch Batch) []string {
	ids := ProgressExecutionIDs(batch.Progress)
	own := make(map[string]bool, len(batch.NewRecords))
	for _, r := range batch.NewRecords {
		own[r.ID] = true
	}
	return slices.DeleteFunc(ids, func(id string) bool { return own[id] })
}

// RecordIDs returns the IDs of the records, in the same order.
func RecordIDs(records []Record) []string {
	ids := make([]string, len(records))
	for i, r := range records {
		ids[i] = r.ID
	}
	return ids
}

// TakeInserted returns the records whose IDs are in fresh, which holds the IDs that a driver has
// just inserted. Of two records with the same ID, it returns only the first. It deletes the IDs of
// the returned records from fresh.
func TakeInserted(records []Record, fresh map[string]bool) (inserted []Record) {
	for _, r := range records {
		if fresh[r.ID] {
			inserted = append(inserted, r)
			delete(fresh, r.ID)
		}
	}
	return inserted
}

// AlreadyRecorded returns the records that were not inserted because their messages had been
// delivered before. Of two records with the same ID, it returns only the first.
func AlreadyRecorded(records, inserted []Record) []Record {
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

// OrderProgress returns all steps in the order in which they must be applied: first kept, the
// pending steps of earlier batches, in the order of their arrival, and then own, the steps of the
// current batch. It sorts kept in place.
func OrderProgress(kept []PendingProgress, own []execution.Progress) []execution.Progress {
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

// SelectPending returns the steps to add to the pending steps, with their positions. These are the
// steps of executions that are not recorded yet, whose IDs are in unknown. have holds the steps
// that are already pending for these executions, without outputs, and last is the highest position
// of any pending step. Steps that are already pending, and steps that could not change a queued
// execution, are left out and not counted. dropped is the number of steps left out because of
// MaxPendingStepsPerExecution.
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
		if number[step.ID] >= MaxPendingStepsPerExecution {
			dropped++
			continue
		}
		kept[keyOf(step)] = true
		number[step.ID]++
		last += 1 + int64(len(step.Output)+len(step.Error))/bytesPerPendingStep
		keep = append(keep, PendingProgress{last, step})
	}
	return keep, dropped
}
