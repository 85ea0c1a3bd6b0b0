package queues

import (
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hookstart/hookstart/shared/stream"
)

const (
	// memberTimeout is how long a runner counts as a member after its last announcement. It is
	// needed because a killed runner does not announce that it leaves.
	memberTimeout = 4 * stream.RunnerHeartbeatInterval
	// maxMembers is the maximum number of members that are tracked per group, and maxGroups the
	// maximum number of groups. The limits exist because any NATS client can make up names.
	maxMembers = 1_000
	maxGroups  = 10_000
)

// memberTracker keeps track of the runners that have announced themselves. Runners announce
// themselves by heartbeats, so a runner that stops doing so is forgotten after memberTimeout.
type memberTracker struct {
	mu     sync.Mutex
	groups map[stream.RunnerGroup]*groupMembers
}

type groupMembers struct {
	lastAnnouncedAt time.Time // when a member last announced itself
	// announcedAtByInstance is when each member last announced itself.
	announcedAtByInstance map[string]time.Time
}

// handleAnnouncement adds, refreshes or removes the runner that sent an announcement.
func (m *memberTracker) handleAnnouncement(msg *nats.Msg) {
	group, instance, ok := stream.ParsePresenceSubject(msg.Subject)
	if !ok {
		return
	}
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.groups[group]
	if h == nil {
		if len(m.groups) >= maxGroups {
			return
		}
		h = &groupMembers{announcedAtByInstance: map[string]time.Time{}}
		m.groups[group] = h
	}
	h.lastAnnouncedAt = now
	if string(msg.Data) == stream.RunnerLeavingData {
		delete(h.announcedAtByInstance, instance)
		return
	}
	_, known := h.announcedAtByInstance[instance]
	if known || len(h.announcedAtByInstance) < maxMembers {
		h.announcedAtByInstance[instance] = now
	}
}

// countMembers returns the number of a group's members, and when one of them last announced itself.
// last is zero if none has announced itself.
func (m *memberTracker) countMembers(
	group stream.RunnerGroup, now time.Time,
) (n int, last time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.groups[group]
	if h == nil {
		return 0, last
	}
	for instance, at := range h.announcedAtByInstance {
		if now.Sub(at) > memberTimeout {
			delete(h.announcedAtByInstance, instance)
		}
	}
	return len(h.announcedAtByInstance), h.lastAnnouncedAt
}
