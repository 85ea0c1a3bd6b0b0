package queuestreams

import "time"

// LongestMoveDuration returns how long the longest unfinished move of a queue or workflow has taken
// so far, or 0 if there is none. The time counts from when Run in this process first saw the move,
// even if different executors have worked on the move since then. A queue's move is finished once
// all new messages go to the new stream, even if old ones still wait in the old stream.
func (m *Mover) LongestMoveDuration() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	longest := time.Duration(0)
	for _, since := range m.movingSince {
		longest = max(longest, time.Since(since))
	}
	return longest
}

// trackMoves updates which queues and workflows are moving, and when this process first saw each of
// these moves.
func (m *Mover) trackMoves() {
	now := map[string]bool{}
	for _, q := range m.config.RegistryIndex.QueueSettings() {
		if q.Stream != nil && q.Stream.Phase.IsMoving() {
			now["queue."+q.Name] = true
		}
	}
	for _, id := range m.config.RegistryIndex.IntakeClosedWorkflowIDs() {
		now["workflow."+id] = true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for key := range m.movingSince {
		if !now[key] {
			delete(m.movingSince, key)
		}
	}
	for key := range now {
		if m.movingSince[key].IsZero() {
			m.movingSince[key] = time.Now()
		}
	}
}
