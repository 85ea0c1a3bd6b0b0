package queuestreams

import "time"

// LongestMove returns for how long the move that began first has lasted, as Run has seen it since
// this process started. It is 0 if nothing moves. A move that gives up and begins again is one
// move. A queue whose old stream is only kept until its messages expire does not move any more.
func (m *Mover) LongestMove() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	longest := time.Duration(0)
	for _, since := range m.moving {
		longest = max(longest, time.Since(since))
	}
	return longest
}

// noteMoves notes which queues and workflows move now.
func (m *Mover) noteMoves() {
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
