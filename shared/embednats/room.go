package embednats

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	// maxReservedBytes is the maximum size of the space that CheckRoom reserves. It equals the
	// default size limit of the stream of reports.
	maxReservedBytes = 1 << 30
	// roomCheckInterval is the interval at which WatchRoom measures the total size of all streams.
	roomCheckInterval = 100 * time.Millisecond
)

// CheckRoom returns an error if no more executions should be started, because all streams together
// have almost reached MaxStore. The last tenth of MaxStore, but at most 1 GiB, is reserved for
// messages that do not start executions. Without this reserve, runners could no longer report, and
// operators could no longer cancel executions or change workflows: beyond MaxStore, the server
// refuses messages to every stream, even to a stream that discards its oldest messages when it is
// full.
//
// CheckRoom never blocks: it returns the result of WatchRoom's last measurement, or nil if nothing
// has been measured yet.
func (s *Server) CheckRoom() error {
	if full := s.roomError.Load(); full != nil {
		return *full
	}
	return nil
}

// WatchRoom measures the total size of all streams every roomCheckInterval, until ctx is done.
// CheckRoom returns the result of the last measurement.
func (s *Server) WatchRoom(ctx context.Context) { s.watchRoom(ctx, checkRoomNow) }

func (s *Server) watchRoom(ctx context.Context, measure func(*server.Server) error) {
	tick := time.NewTicker(roomCheckInterval)
	defer tick.Stop()
	for {
		// While the server is being restarted, the last result remains valid.
		if ns := s.natsServer(); ns != nil {
			if err := measure(ns); err != nil {
				s.roomError.Store(&err)
			} else {
				s.roomError.Store(nil)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// checkRoomNow measures the total size of all streams, and returns the error for CheckRoom, or nil
// if more executions may be started. It uses Varz, because Jsz waits for streams whose messages are
// being written to the disk.
func checkRoomNow(ns *server.Server) error {
	v, err := ns.Varz(nil)
	if err != nil {
		return fmt.Errorf("NATS server: %w", err)
	}
	config, stats := v.JetStream.Config, v.JetStream.Stats
	if config == nil || stats == nil || !ns.JetStreamEnabled() {
		return nil // Health reports that JetStream is disabled
	}
	limit, used := config.MaxStore, int64(min(stats.Store, math.MaxInt64))
	if used <= limit-min(limit/10, maxReservedBytes) {
		return nil
	}
	return fmt.Errorf("the streams hold %d of the %d bytes that NATS may store on this disk; the "+
		"rest is kept for the reports of runners and for changes", used, limit)
}
