package embednats

import (
	"fmt"
	"math"
	"sync"
	"time"
)

const (
	// maxReserve is the most that CheckRoom keeps free. It is as much as reports take by default.
	maxReserve = 1 << 30
	// roomCheckInterval is how long CheckRoom returns the same result, because every request asks.
	roomCheckInterval = 100 * time.Millisecond
)

// roomCheck is the last result of CheckRoom.
type roomCheck struct {
	mu  sync.Mutex
	at  time.Time
	err error
}

// CheckRoom returns an error if all streams together have come so close to MaxStore that the rest,
// a tenth or 1 GiB, must be left to other messages than those that start executions. Beyond
// MaxStore, the server refuses messages to every stream, also to one that would drop old messages
// for new ones: without this reserve, nothing could be reported, canceled or changed any more.
func (s *Server) CheckRoom() error {
	s.room.mu.Lock()
	defer s.room.mu.Unlock()
	if now := time.Now(); now.Sub(s.room.at) >= roomCheckInterval {
		s.room.at, s.room.err = now, s.measureRoom()
	}
	return s.room.err
}

func (s *Server) measureRoom() error {
	ns := s.natsServer()
	if ns == nil {
		return nil // Health reports that
	}
	info, err := ns.Jsz(nil)
	if err != nil {
		return fmt.Errorf("NATS server: %w", err)
	}
	limit, used := info.Config.MaxStore, int64(min(info.Store, math.MaxInt64))
	if reserve := min(limit/10, maxReserve); info.Disabled || used <= limit-reserve {
		return nil
	}
	return fmt.Errorf("the streams hold %d of the %d bytes that NATS may store on this disk; the "+
		"rest is kept for the reports of runners and for changes", used, limit)
}
