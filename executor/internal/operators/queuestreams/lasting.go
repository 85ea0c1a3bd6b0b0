package queuestreams

import "time"

// LongestMove returns the duration of the longest current move of a queue or workflow, or 0 if none
// is moving. It measures from when Run in this process first saw the move. An abandoned and
// restarted move counts as one move. A queue whose old stream only waits for its messages to expire
// is no longer moving.
func (m *Mover) LongestMove() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	longest := time.Duration(0)
	for _, since := range m.moving {
		longest = max(longest, time.Since(since))
	}
	return longest
}

// trackMoves records which queues and workflows are moving, and when each was first seen to move.
func (m *Mover) trackMoves() {
	now := map[string]bool{}
	for _, q := range m.config.Directory.QueueSettings() {
		if q.Stream != nil && q.Stream.Phase.IsMoving() {
			now["queue."+q.Name] = true
		}
	}
	for _, id := range m.config.Directory.ClosedWorkflows() {
		now["workflow."+id] = true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for key := range m.moving {
		if !now[key] {
			delete(m.moving, key)
		}
	}
	for key := range now {
		if m.moving[key].IsZero() {
			m.moving[key] = time.Now()
		}
	}
}
