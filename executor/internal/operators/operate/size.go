package operate

import (
	"context"
	"strings"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/store"
)

// requestCountPeriod is the period for which Size counts requests. Per-minute counts are not kept
// longer.
const requestCountPeriod = 7 * 24 * time.Hour

// Size returns the size of the installation and its activity in the last week.
func (s *Service) Size(ctx context.Context, caller Caller) (api.Size, error) {
	return runRead(ctx, s, caller, newAccessRule("Size", accessToAllAccounts),
		func(ctx context.Context) (api.Size, error) {
			now := time.Now().UTC()
			size := api.Size{At: now, Hours: []api.SizeHour{}}
			minutes, err := s.config.Store.MinuteCounts(ctx, now.Add(-requestCountPeriod))
			if err != nil {
				return api.Size{}, err
			}
			size.Hours = sumByHour(minutes)
			have, err := s.config.Store.Stats(ctx)
			if err != nil {
				return api.Size{}, err
			}
			size.Database = api.SizeDatabase{
				Kind:             have.Driver,
				Bytes:            have.Bytes,
				ReusableBytes:    have.ReusableBytes,
				Records:          have.Records,
				OldestAcceptedAt: have.OldestAcceptedAt,
				RetentionSeconds: int64(s.config.Retention / time.Second),
			}
			if have.FreeBytes >= 0 {
				size.Database.FreeBytes = &have.FreeBytes
			}
			all, since := s.config.RegistryIndex.CountWorkflows(now.Add(-requestCountPeriod))
			size.Workflows, size.WorkflowsLastWeek = int64(all), int64(since)
			return size, nil
		})
}

// sumByHour sums per-minute counts, which must be sorted by time, by hour.
func sumByHour(minutes []store.MinuteCount) []api.SizeHour {
	hours := []api.SizeHour{}
	for _, n := range minutes {
		at := n.Minute.UTC().Truncate(time.Hour)
		if len(hours) == 0 || !hours[len(hours)-1].At.Equal(at) {
			hours = append(hours, api.SizeHour{At: at})
		}
		switch hour := &hours[len(hours)-1]; {
		case n.Kind == store.KindAccepted:
			hour.Accepted += n.Count
		case n.Kind == store.KindDeduplicated:
			hour.Deduplicated += n.Count
		case strings.HasPrefix(n.Kind, store.KindRefused):
			hour.Refused += n.Count
		}
	}
	return hours
}
