package sizing

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/shared/registry"
)

// Measurements from deploy/bench/README.md.
const (
	// memoryBytesPerDeliveryID is the memory, in bytes, that one delivery ID in the deduplication
	// window occupies in each NATS server that holds the stream.
	memoryBytesPerDeliveryID = 164
	// sqliteRecordBytes and postgresRecordBytes are the sizes in bytes of a record, including its
	// part of the indexes. They are used if there are fewer than minRecordsToMeasure records,
	// because even an empty database has tables and indexes.
	sqliteRecordBytes, postgresRecordBytes = 187, 272
	minRecordsToMeasure                    = 10_000
	// maxMeasuredWorkflows is the largest number of workflows for which hookstart's performance has
	// been measured.
	maxMeasuredWorkflows = 1_000_000
)

// ConfiguredLimits holds limits that neither NATS nor the operators' API reports. 0 means unknown.
type ConfiguredLimits struct {
	NATSMemoryBytes        int64   // memory for delivery IDs of each NATS server, in bytes
	NATSDiskBytes          int64   // disk of each NATS server, in bytes
	DatabaseDiskBytes      int64   // disk of the database, in bytes
	MaxDeliveriesPerSecond float64 // maximum rate, in deliveries per second
}

// Report describes how far an installation is from its limits.
type Report struct {
	At time.Time `json:"at"`
	// CoveredDays is the number of days on which the rates are based. It is at most 7. CoversWeek
	// reports whether it is 7.
	CoveredDays float64 `json:"days"`
	CoversWeek  bool    `json:"complete"`
	// DeliveriesPerSecond is the mean rate of deliveries, including repeats. BusiestPerSecond is
	// the mean rate in the busiest hour, which began at BusiestHour.
	DeliveriesPerSecond float64   `json:"deliveriesPerSecond"`
	BusiestPerSecond    float64   `json:"busiestPerSecond"`
	BusiestHour         time.Time `json:"busiestHour,omitzero"`
	// GrowthPerDay is the growth of the rate from one day to the next, as a fraction of the mean
	// rate. It is nil if too few days are covered to compute it.
	GrowthPerDay *float64 `json:"growthPerDay"`
	// Forecasts holds one forecast for each limit. The limits that will be reached soonest come
	// first, then the others, fullest first. Limits that may be reached without harm come last.
	Forecasts []LimitForecast `json:"walls"`
}

// LimitForecast describes a limit of an installation and when it will be reached.
type LimitForecast struct {
	Name string `json:"name"`
	Unit Unit   `json:"unit"`
	// CurrentAmount is the current usage. Detail explains it in words.
	CurrentAmount float64 `json:"now"`
	Detail        string  `json:"detail,omitempty"`
	// Limit is the limit itself. nil means that there is no limit or that it is unknown.
	Limit       *float64    `json:"limit"`
	PercentUsed *float64    `json:"percent"` // of the limit; nil if Limit is nil
	Reached     ReachedWhen `json:"reached"`
	// DaysLeft is the number of days until the limit is reached, if Reached is ReachedInDays.
	// Otherwise it is nil.
	DaysLeft *float64 `json:"daysLeft"`
	// Advice explains how to raise the limit or to reduce the usage.
	Advice string `json:"advice"`
}

// Unit is the unit of measurement of a limit and of its current amount.
type Unit string

// Units of amounts.
const (
	UnitBytes     Unit = "bytes"
	UnitPerSecond Unit = "deliveries/s"
	UnitSeconds   Unit = "seconds"
	UnitWorkflows Unit = "workflows"
	UnitStreams   Unit = "streams"
	UnitConsumers Unit = "consumers"
)

// ReachedWhen describes when a limit is reached.
type ReachedWhen string

// Values of ReachedWhen.
const (
	ReachedNoLimit    ReachedWhen = "noLimit"    // there is no limit, or it is unknown
	ReachedNoForecast ReachedWhen = "noForecast" // the growth is unknown
	ReachedNow        ReachedWhen = "now"        // it has been reached
	ReachedInDays     ReachedWhen = "inDays"     // within forecastHorizonDays
	// ReachedNotInAYear means that the limit is not reached within forecastHorizonDays if growth
	// continues as in the last week.
	ReachedNotInAYear ReachedWhen = "notWithinOneYear"
	// ReachedDropsOldest means that reaching the limit does no harm, because NATS then drops the
	// oldest messages.
	ReachedDropsOldest ReachedWhen = "dropsOldest"
)

// NewReport computes a Report. size is from the operators' API, nats is from NATS, and limits are
// those that neither of them knows.
func NewReport(size api.Size, nats NATSUsage, limits ConfiguredLimits) Report {
	since := nats.SharedStreamCreatedAt
	if oldest := size.Database.OldestAcceptedAt; !oldest.IsZero() &&
		(since.IsZero() || oldest.Before(since)) {
		since = oldest
	}
	r := Report{At: size.At, Forecasts: []LimitForecast{}}
	all := weekStatsFromHours(size.Hours, size.At, since, func(h api.SizeHour) int64 {
		return h.Accepted + h.Deduplicated
	})
	accepted := weekStatsFromHours(size.Hours, size.At, since, func(h api.SizeHour) int64 {
		return h.Accepted
	})
	r.CoveredDays, r.CoversWeek = all.CoveredDays, all.CoveredDays >= 7
	r.DeliveriesPerSecond = all.PerDay / day.Seconds()
	r.BusiestHour, r.BusiestPerSecond = busiestHour(size.Hours)
	if all.GrowthKnown() {
		growth := relativeGrowth(all)
		r.GrowthPerDay = &growth
	}
	// The growth of a stream that covers fewer than minTrendDays days cannot be computed. Assume
	// that such a stream grows at the same relative rate as the accepted requests.
	streams := slices.Clone(nats.Streams)
	for i, s := range streams {
		if !s.WeekMessages.GrowthKnown() {
			streams[i].WeekMessages.DailyGrowth = s.WeekMessages.PerDay * relativeGrowth(accepted)
		}
	}
	r.addForecast(r.forecastRate(all, limits))
	r.addServerForecasts(streams, limits)
	for _, s := range streams {
		r.addStreamForecasts(s)
	}
	for _, t := range nats.Tiers {
		r.addAccountForecasts(t, streams)
	}
	r.addForecast(forecastDatabase(size, accepted, limits))
	r.addForecast(forecastRegistry(size, streams, accepted.CoveredDays))
	slices.SortStableFunc(r.Forecasts, compareForecasts)
	return r
}

// weekStatsFromHours returns the WeekStats for the given hours. since is when the installation
// began, and count returns the amount of one hour. If an ingress's clock is ahead, requests are
// counted in a future hour. These requests are added to the most recent day.
func weekStatsFromHours(
	hours []api.SizeHour,
	now, since time.Time,
	count func(api.SizeHour) int64,
) WeekStats {
	var periods [7]float64
	for _, h := range hours {
		// An hour that spans two days counts for the day that has the larger part of it.
		i := max(int(now.Sub(h.At.Add(time.Hour/2))/day), 0)
		periods[min(i, len(periods)-1)] += float64(count(h))
	}
	return NewWeekStats(periods, now.Sub(since))
}

// relativeGrowth returns a week's growth from one day to the next as a fraction of its daily mean.
func relativeGrowth(w WeekStats) float64 {
	if w.PerDay == 0 {
		return 0
	}
	return w.DailyGrowth / w.PerDay
}

// busiestHour returns when the hour with the most deliveries began, and the mean rate in that hour,
// in deliveries per second.
func busiestHour(hours []api.SizeHour) (at time.Time, perSecond float64) {
	for _, h := range hours {
		if rate := float64(h.Accepted+h.Deduplicated) / time.Hour.Seconds(); rate > perSecond {
			at, perSecond = h.At, rate
		}
	}
	return at, perSecond
}

// compareForecasts compares two forecasts for sorting: limits that will be reached sooner come
// first. Of the limits that will be reached at the same time or not at all, the fuller one comes
// first.
func compareForecasts(a, b LimitForecast) int {
	rank := func(w LimitForecast) float64 {
		if w.Reached == ReachedNow {
			return 0
		}
		if w.DaysLeft != nil {
			return *w.DaysLeft
		}
		if w.Reached == ReachedDropsOldest { // harmless, so it comes last
			return forecastHorizonDays + 2
		}
		return forecastHorizonDays + 1
	}
	full := func(w LimitForecast) float64 {
		if w.PercentUsed == nil {
			return -1
		}
		return *w.PercentUsed
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(full(b), full(a)))
}

// FormatCount formats a whole number with thousands separators, followed by a noun. Unless the
// number is 1, it adds an s to the noun.
func FormatCount(n float64, noun string) string {
	digits := strconv.FormatFloat(n, 'f', 0, 64)
	if digits != "1" {
		noun += "s"
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits + " " + noun
}

func (r *Report) addForecast(w LimitForecast) { r.Forecasts = append(r.Forecasts, w) }

// withForecast returns w with CurrentAmount set to now, and with the limit and the forecast set. A
// limit of 0 means that there is no limit. after(d) must return the amount after d days; after is
// nil if the growth is unknown.
func (w LimitForecast) withForecast(
	now, limit float64,
	after func(days float64) float64,
) LimitForecast {
	w.CurrentAmount, w.Reached = now, ReachedNoLimit
	if limit <= 0 {
		return w
	}
	percent := now / limit * 100
	w.Limit, w.PercentUsed, w.Reached = &limit, &percent, ReachedNotInAYear
	if now >= limit {
		w.Reached = ReachedNow
		return w
	}
	if after == nil {
		w.Reached = ReachedNoForecast
		return w
	}
	if days, ok := DaysUntilLimit(limit, after); ok {
		w.Reached, w.DaysLeft = ReachedInDays, &days
	}
	return w
}

func (r *Report) forecastRate(all WeekStats, limits ConfiguredLimits) LimitForecast {
	w := LimitForecast{
		Name: "Deliveries, busiest hour", Unit: UnitPerSecond,
		Advice: "Measure your machines with make bench and give the result as --max-rate; give " +
			"busy queues streams of their own (hookstart queue stream set QUEUE), and add " +
			"ingresses, and executors with PostgreSQL.",
	}
	return w.withForecast(r.BusiestPerSecond, limits.MaxDeliveriesPerSecond,
		func(days float64) float64 {
			return r.BusiestPerSecond * max(0, 1+relativeGrowth(all)*days)
		})
}

// retainedMessages returns a RetainedAmount for the stream's messages, from which a forecast can be
// made. now is the current number of messages, and keep is how long each message is kept; 0 means
// forever.
func (s *StreamUsage) retainedMessages(now int64, keep time.Duration) RetainedAmount {
	h := RetainedAmount{
		CurrentAmount: float64(now), PerDay: s.WeekMessages.PerDay,
		DailyGrowth: s.WeekMessages.DailyGrowth,
		KeepDays:    keep.Hours() / 24, AccumulatedDays: s.WeekMessages.CoveredDays,
	}
	if keep > 0 {
		h.AccumulatedDays = min(h.AccumulatedDays, h.KeepDays)
	}
	return h
}

// bytesAfter returns the forecast size of the stream, in bytes, after a number of days.
func (s *StreamUsage) bytesAfter(days float64) float64 {
	if s.Kind == StreamKindOther || s.Messages == 0 {
		return float64(s.Bytes)
	}
	size := float64(s.Bytes) / float64(s.Messages) *
		s.retainedMessages(s.Messages, s.MaxAge).AmountAfter(days)
	if s.Kind == StreamKindReports && s.MaxBytes > 0 {
		size = min(size, float64(s.MaxBytes)) // the oldest messages are dropped
	}
	return size
}

// addServerForecasts adds the forecasts for the limits of each NATS server: its memory for delivery
// IDs and its disk.
func (r *Report) addServerForecasts(streams []StreamUsage, limits ConfiguredLimits) {
	byServer := map[string][]StreamUsage{}
	for _, s := range streams {
		for _, server := range s.Servers {
			byServer[server] = append(byServer[server], s)
		}
		if len(s.Servers) == 0 {
			byServer[""] = append(byServer[""], s)
		}
	}
	for _, server := range slices.Sorted(maps.Keys(byServer)) {
		name := ""
		if len(byServer) > 1 {
			name = " of " + server
		}
		ids := func(days float64) (sum float64) {
			for _, s := range byServer[server] {
				if s.Kind == StreamKindStarts {
					sum += s.retainedMessages(s.DedupWindowMessages, s.DedupWindow).
						AmountAfter(days) *
						memoryBytesPerDeliveryID
				}
			}
			return sum
		}
		r.addForecast(LimitForecast{
			Name: "Memory for delivery IDs" + name, Unit: UnitBytes,
			Detail: FormatCount(ids(0)/memoryBytesPerDeliveryID, "ID") + " at most",
			Advice: "Give busy queues streams of their own on other servers (hookstart queue " +
				"stream set QUEUE --placement TAG), or shorten the dedup window (hookstart admin " +
				"stream --dedup-window DURATION); --nats-memory says how much there is.",
		}.withForecast(ids(0), float64(limits.NATSMemoryBytes), ids))
		bytes := func(days float64) (sum float64) {
			for _, s := range byServer[server] {
				sum += s.bytesAfter(days)
			}
			return sum
		}
		r.addForecast(LimitForecast{
			Name: "Disk of NATS" + name, Unit: UnitBytes,
			Advice: "Enlarge the disk, or shorten the age (hookstart admin stream --max-age " +
				"DURATION); limit the streams below the size of the disk (hookstart admin stream " +
				"--max-bytes BYTES); --nats-disk says how large it is.",
		}.withForecast(bytes(0), float64(limits.NATSDiskBytes), bytes))
	}
}

// addStreamForecasts adds the forecasts for a stream of start messages or of reports: its size and
// the recorder's lag.
func (r *Report) addStreamForecasts(s StreamUsage) {
	if s.Kind == StreamKindOther {
		return
	}
	w := LimitForecast{
		Name:   "Stream " + s.Name,
		Unit:   UnitBytes,
		Detail: FormatCount(float64(s.Messages), "message"),
	}
	queue, own := strings.CutPrefix(s.Name, "QUEUE_")
	switch {
	case s.Kind == StreamKindReports:
		w.Advice = "Nothing: at its size it drops the oldest reports, which are recorded long " +
			"before that unless executors are behind."
		if w = w.withForecast(float64(s.Bytes), float64(s.MaxBytes), nil); s.MaxBytes > 0 {
			w.Reached = ReachedDropsOldest
		}
	case own:
		w.Advice = "Raise the size, or shorten the age: hookstart queue stream set " + queue +
			" --max-bytes BYTES --max-age DURATION."
		w = w.withForecast(float64(s.Bytes), float64(s.MaxBytes), s.bytesAfter)
	default:
		w.Advice = "Raise the size, or shorten the age (hookstart admin stream --max-bytes BYTES " +
			"--max-age DURATION), or give a busy queue a stream of its own."
		w = w.withForecast(float64(s.Bytes), float64(s.MaxBytes), s.bytesAfter)
	}
	r.addForecast(w)
	r.addForecast(LimitForecast{
		Name: "Recording of " + s.Name, Unit: UnitSeconds,
		Detail: FormatCount(float64(s.UnrecordedMessages), "message") + " not recorded yet",
		Advice: "Add executors (with PostgreSQL), or give the database faster disks; what is " +
			"older than the stream's age is never recorded.",
	}.withForecast(s.OldestUnrecordedAge.Seconds(), s.MaxAge.Seconds(), nil))
}

// addAccountForecasts adds the forecasts for the limits of the JetStream account.
func (r *Report) addAccountForecasts(t AccountTier, streams []StreamUsage) {
	name := "NATS account"
	if t.Name != "" {
		name += " " + t.Name
	}
	const advice = "Raise the limit of the account in the configuration of the NATS servers"
	if t.MaxBytes > 0 {
		held := func(days float64) (sum float64) {
			for _, s := range streams {
				if t.Replicas == 0 || t.Replicas == s.Replicas {
					sum += s.bytesAfter(days)
				}
			}
			return sum
		}
		// The account is charged for every replica, and for the streams of other programs, so
		// t.Bytes is more than our streams hold. Assume that t.Bytes grows in the same proportion
		// as our streams.
		factor := 1.0
		if now := held(0); now > 0 && t.Bytes > 0 {
			factor = float64(t.Bytes) / now
		}
		r.addForecast(LimitForecast{
			Name: name + ", storage", Unit: UnitBytes,
			Advice: advice + ", or shorten the age (hookstart admin stream --max-age DURATION).",
		}.withForecast(float64(t.Bytes), float64(t.MaxBytes), func(days float64) float64 {
			return float64(t.Bytes) + factor*(held(days)-held(0))
		}))
	}
	if t.MaxStreams > 0 {
		r.addForecast(LimitForecast{
			Name: name + ", streams", Unit: UnitStreams,
			Advice: advice + "; a queue with a stream of its own has two (hookstart queue list).",
		}.withForecast(float64(t.Streams), float64(t.MaxStreams), nil))
	}
	if t.MaxConsumers > 0 {
		r.addForecast(LimitForecast{
			Name: name + ", consumers", Unit: UnitConsumers,
			Advice: advice + "; a group of runners has one for each queue, and 16 for order keys.",
		}.withForecast(float64(t.Consumers), float64(t.MaxConsumers), nil))
	}
}

func forecastDatabase(size api.Size, accepted WeekStats, limits ConfiguredLimits) LimitForecast {
	d := size.Database
	name, record := "SQLite", float64(sqliteRecordBytes)
	advice := "Keep records for a shorter time (--retention of the executors), or enlarge the " +
		"disk of the file."
	if d.Kind == "postgres" {
		name, record = "PostgreSQL", postgresRecordBytes
		advice = "Keep records for a shorter time (--retention of the executors), or enlarge the " +
			"disk of the database; --database-disk says how large it is."
	}
	used := float64(d.Bytes - d.ReusableBytes)
	if d.Records >= minRecordsToMeasure {
		record = used / float64(d.Records)
	}
	limit := float64(limits.DatabaseDiskBytes)
	if limit == 0 && d.FreeBytes != nil {
		limit = float64(d.Bytes + *d.FreeBytes)
	}
	records := RetainedAmount{
		CurrentAmount: float64(d.Records), PerDay: accepted.PerDay,
		DailyGrowth: accepted.DailyGrowth,
		KeepDays:    float64(d.RetentionSeconds) / day.Seconds(),
	}
	if !d.OldestAcceptedAt.IsZero() {
		records.AccumulatedDays = max(size.At.Sub(d.OldestAcceptedAt).Hours()/24, 0)
	}
	return LimitForecast{
		Name: "Database (" + name + ")", Unit: UnitBytes,
		Detail: FormatCount(float64(d.Records),
			"record") + ", " + FormatCount(accepted.PerDay, "new one") +
			" a day",
		Advice: advice,
	}.withForecast(used, limit, func(days float64) float64 {
		return used + record*(records.AmountAfter(days)-records.CurrentAmount)
	})
}

// forecastRegistry returns the forecast for the size of the registry, which every ingress loads
// into memory.
func forecastRegistry(size api.Size, streams []StreamUsage, days float64) LimitForecast {
	bytes := int64(0)
	for _, s := range streams {
		if slices.Contains(registry.Streams(), s.Name) {
			bytes += s.Bytes
		}
	}
	made := RetainedAmount{
		CurrentAmount: float64(size.Workflows),
		PerDay:        float64(size.WorkflowsLastWeek) / days,
	}
	return LimitForecast{
		Name: "Registry", Unit: UnitWorkflows,
		Detail: fmt.Sprintf("%d KB in NATS", (bytes+999)/1000),
		Advice: "Delete workflows that nobody calls; the limit is the largest number that was " +
			"measured, with which an ingress needs 0.5 GB and is ready 8 s after its start.",
	}.withForecast(made.CurrentAmount, maxMeasuredWorkflows, made.AmountAfter)
}
