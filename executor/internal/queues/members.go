package queues

import (
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hookstart/hookstart/shared/stream"
)

const (
	// forgetMember is the time after which a silent runner counts as gone, because a killed runner
	// sends nothing.
	forgetMember = 4 * stream.RunnerHeartbeat
	// maxMembers is the maximum number of members of a group, and maxGroups is the maximum number
	// of groups. They are bounded because a program on NATS can invent names.
	maxMembers = 1_000
	maxGroups  = 10_000
)

// members holds the runners that have announced themselves.
type members struct {
	mu     sync.Mutex
	groups map[stream.RunnerGroup]*heard
}

type heard struct {
	last    time.Time // time of the last announcement of a member
	members map[string]time.Time
}

// receive handles a runner's announcement.
func (m *members) receive(msg *nats.Msg) {
	group, instance, ok := stream.ParsePresence(msg.Subject)
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
		h = &heard{members: map[string]time.Time{}}
		m.groups[group] = h
	}
	h.last = now
	if string(msg.Data) == stream.RunnerLeaves {
		delete(h.members, instance)
		return
	}
	if _, known := h.members[instance]; known || len(h.members) < maxMembers {
		h.members[instance] = now
	}
}

// count returns the number of members of a group and the time of the last announcement, which is
// zero if there was none.
func (m *members) count(group stream.RunnerGroup, now time.Time) (n int, last time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.groups[group]
	if h == nil {
		return 0, last
	}
	for instance, at := range h.members {
		if now.Sub(at) > forgetMember {
			delete(h.members, instance)
		}
	}
	return len(h.members), h.last
}
