package embednats

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	// maxReserve is the most that CheckRoom keeps free. It is as much as reports take by default.
	maxReserve = 1 << 30
	// roomCheckInterval is how often WatchRoom measures.
	roomCheckInterval = 100 * time.Millisecond
)

// CheckRoom returns an error if all streams together have come so close to MaxStore that the rest,
// a tenth or 1 GiB, must be left to other messages than those that start executions. Beyond
// MaxStore, the server refuses messages to every stream, also to one that would drop old messages
// for new ones: without this reserve, nothing could be reported, canceled or changed any more.
//
// CheckRoom never blocks: it returns what WatchRoom has measured last, or nil if it has not.
func (s *Server) CheckRoom() error {
	if full := s.full.Load(); full != nil {
		return *full
	}
	return nil
}

// WatchRoom measures until ctx is done how much all streams hold, for CheckRoom.
func (s *Server) WatchRoom(ctx context.Context) { s.watchRoom(ctx, measureRoom) }

func (s *Server) watchRoom(ctx context.Context, measure func(*server.Server) error) {
	tick := time.NewTicker(roomCheckInterval)
	defer tick.Stop()
	for {
		// While the server is restarted, its streams hold what they held before.
		if ns := s.natsServer(); ns != nil {
			if err := measure(ns); err != nil {
				s.full.Store(&err)
			} else {
				s.full.Store(nil)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// measureRoom measures for CheckRoom. It asks for Varz, because Jsz waits for streams whose
// messages are being written to the disk.
func measureRoom(ns *server.Server) error {
	v, err := ns.Varz(nil)
	if err != nil {
		return fmt.Errorf("NATS server: %w", err)
	}
	config, stats := v.JetStream.Config, v.JetStream.Stats
	if config == nil || stats == nil || !ns.JetStreamEnabled() {
		return nil // Health reports that
	}
	limit, used := config.MaxStore, int64(min(stats.Store, math.MaxInt64))
	if used <= limit-min(limit/10, maxReserve) {
		return nil
	}
	return fmt.Errorf("the streams hold %d of the %d bytes that NATS may store on this disk; the "+
		"rest is kept for the reports of runners and for changes", used, limit)
}
