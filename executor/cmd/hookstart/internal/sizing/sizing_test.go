package sizing

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/client/api"
)

var now = time.Date(2026, 11, 25, 12, 30, 0, 0, time.UTC)

// hourly returns the counts of every hour of the given number of days up to now. accepted returns
// the number of accepted requests in each hour of a day; day 0 is the most recent one.
func hourly(days int, accepted func(day int) int64) (hours []api.SizeHour) {
	for h := days*24 - 1; h >= 0; h-- {
		hours = append(hours, api.SizeHour{
			At:       now.Truncate(time.Hour).Add(-time.Duration(h) * time.Hour),
			Accepted: accepted(h / 24),
		})
	}
	return hours
}

func steady(n int64) func(int) int64 { return func(int) int64 { return n } }

// wall returns the forecast for the limit with the given name, and fails the test if there is none.
func wall(t *testing.T, r Report, name string) LimitForecast {
	t.Helper()
	i := slices.IndexFunc(r.Forecasts, func(w LimitForecast) bool { return w.Name == name })
	if i < 0 {
		var names []string
		for _, w := range r.Forecasts {
			names = append(names, w.Name)
		}
		t.Fatalf("no wall %q in %q", name, names)
	}
	return r.Forecasts[i]
}

// want checks the current amount (now), the limit and the Reached of the forecast. A limit of 0
// means that the forecast must have no limit. If reached is ReachedInDays, days is the expected
// DaysLeft.
func (w LimitForecast) want(t *testing.T, now, limit float64, reached ReachedWhen, days float64) {
	t.Helper()
	if !near(w.CurrentAmount, now) || w.Reached != reached || (w.Limit != nil) != (limit > 0) ||
		(w.PercentUsed != nil) != (limit > 0) ||
		(w.DaysLeft != nil) != (reached == ReachedInDays) ||
		w.Advice == "" {
		t.Fatalf("%+v, want %v of %v, %s", w, now, limit, reached)
	}
	if limit > 0 && (!near(*w.Limit, limit) || !near(*w.PercentUsed, now/limit*100)) {
		t.Errorf("%s: %v %% of %v, want %v of %v", w.Name, *w.PercentUsed, *w.Limit, now, limit)
	}
	if reached == ReachedInDays && !near(*w.DaysLeft, days) {
		t.Errorf("%s: reached in %v days, want %v", w.Name, *w.DaysLeft, days)
	}
}

// In the report of a new installation, the rates are 0 and no limit will be reached soon.
func TestReportOfAnEmptyInstallation(t *testing.T) {
	t.Parallel()
	r := NewReport(api.Size{
		At: now, Hours: []api.SizeHour{}, Database: api.SizeDatabase{Kind: "postgres"},
	}, NATSUsage{SharedStreamCreatedAt: now}, ConfiguredLimits{})
	if r.CoversWeek || !near(r.CoveredDays, 1./24) || r.DeliveriesPerSecond != 0 ||
		r.BusiestPerSecond != 0 || !r.BusiestHour.IsZero() || r.GrowthPerDay != nil {
		t.Errorf("%+v", r)
	}
	wall(t, r, "Deliveries, busiest hour").want(t, 0, 0, ReachedNoLimit, 0)
	wall(t, r, "Database (PostgreSQL)").want(t, 0, 0, ReachedNoLimit, 0)
	wall(t, r, "Registry").want(t, 0, maxMeasuredWorkflows, ReachedNotInAYear, 0)
}

// The rates are computed from the requests of the last week. Repeats count as deliveries, but start
// no executions.
func TestReportOfTheRate(t *testing.T) {
	t.Parallel()
	hours := hourly(7, steady(3_600))
	hours[10].Accepted, hours[10].Deduplicated = 36_000, 36_000
	hours[11].Refused = 1_000_000
	size := api.Size{At: now, Hours: hours}
	r := NewReport(size, NATSUsage{SharedStreamCreatedAt: now.Add(-30 * day)},
		ConfiguredLimits{MaxDeliveriesPerSecond: 40})
	if !r.CoversWeek || r.CoveredDays != 7 || !near(r.DeliveriesPerSecond, 1+(19./168)) ||
		!near(r.BusiestPerSecond, 20) || !r.BusiestHour.Equal(hours[10].At) ||
		r.GrowthPerDay == nil || *r.GrowthPerDay != 0 {
		t.Errorf("%+v", r)
	}
	wall(t, r, "Deliveries, busiest hour").want(t, 20, 40, ReachedNotInAYear, 0)

	// The rate grows by a tenth of its mean every day.
	size.Hours = hourly(7, func(day int) int64 { return 3_600 * (13 - int64(day)) })
	r = NewReport(size, NATSUsage{SharedStreamCreatedAt: now.Add(-30 * day)},
		ConfiguredLimits{MaxDeliveriesPerSecond: 26})
	if r.GrowthPerDay == nil || !near(*r.GrowthPerDay, 0.1) {
		t.Errorf("%+v", r)
	}
	wall(t, r, "Deliveries, busiest hour").want(t, 13, 26, ReachedInDays, 10)
}

// The clocks of an ingress and of the NATS server are ahead of the executor's clock. Requests are
// then counted in a future hour, and the stream seems to have been created in the future. The
// report still counts these requests, and the covered time is the minimum of one hour.
func TestReportWithClocksThatDiffer(t *testing.T) {
	t.Parallel()
	size := api.Size{At: now, Hours: []api.SizeHour{
		{At: now.Truncate(time.Hour).Add(30 * time.Hour), Accepted: 60},
	}}
	r := NewReport(size, NATSUsage{SharedStreamCreatedAt: now.Add(2 * time.Hour)},
		ConfiguredLimits{MaxDeliveriesPerSecond: 1})
	if r.CoversWeek || !near(r.CoveredDays, 1./24) || !near(r.DeliveriesPerSecond, 1./60) {
		t.Errorf("%+v", r)
	}
	// After a restore from a backup, the records are older than the stream. They show that the
	// installation is more than a week old, so the report is complete.
	size.Database.OldestAcceptedAt = now.Add(-10 * day)
	if r := NewReport(size, NATSUsage{SharedStreamCreatedAt: now},
		ConfiguredLimits{}); !r.CoversWeek {
		t.Errorf("%+v", r)
	}
	// If the oldest record has a time in the future, the forecast for the database is still
	// correct.
	size.Database = api.SizeDatabase{
		OldestAcceptedAt: now.Add(time.Hour), Records: 1, Bytes: 1_000, RetentionSeconds: 86_400,
	}
	r = NewReport(size, NATSUsage{SharedStreamCreatedAt: now},
		ConfiguredLimits{DatabaseDiskBytes: 1_000_000_000})
	wall(t, r, "Database (SQLite)").want(t, 1_000, 1_000_000_000, ReachedNotInAYear, 0)
}

// weekly returns a stream that contains one week of start messages with 1,000 bytes each. perDay is
// the mean number of messages per day, and growth is how many more arrive each day than the day
// before.
func weekly(name string, perDay, growth float64, servers ...string) StreamUsage {
	return StreamUsage{
		Name: name, Kind: StreamKindStarts, Servers: servers, Replicas: len(servers),
		Messages: int64(7 * perDay), Bytes: int64(7 * perDay * 1_000), MaxAge: 7 * day,
		DedupWindow: day, DedupWindowMessages: int64(perDay),
		WeekMessages: WeekStats{7, perDay, growth},
	}
}

// The memory for delivery IDs is computed for each server from the streams on that server.
func TestReportOfDeliveryIDs(t *testing.T) {
	t.Parallel()
	nats := NATSUsage{SharedStreamCreatedAt: now.Add(-30 * day), Streams: []StreamUsage{
		weekly("EXECUTIONS", 1_000_000, 0, "a", "b", "c"),
		weekly("QUEUE_busy", 2_000_000, 200_000, "c"),
		{Name: "PROGRESS", Kind: StreamKindReports, Servers: []string{"a"}, DedupWindowMessages: 9},
		{Name: "KV_registry", Kind: StreamKindOther, Servers: []string{"c"}, Bytes: 5_000},
	}}
	r := NewReport(api.Size{At: now}, nats, ConfiguredLimits{NATSMemoryBytes: 1_000 * 1e6})
	wall(t, r, "Memory for delivery IDs of a").want(t, 164e6, 1_000e6, ReachedNotInAYear, 0)
	wall(t, r, "Memory for delivery IDs of b").want(t, 164e6, 1_000e6, ReachedNotInAYear, 0)
	// QUEUE_busy gets 2,000,000 delivery IDs per day now, and 200,000 more each day. The
	// deduplication window is one day. The mean rate of a window that ends in d days is the rate in
	// its middle, so the window then has 2,000,000 + 200,000 × (d - ½) IDs. EXECUTIONS adds
	// 1,000,000, and an ID takes 164 bytes. Solve 164 × (3,000,000 + 200,000 × (d - ½)) = 1,000 MB
	// for d.
	c := wall(t, r, "Memory for delivery IDs of c")
	days := (1_000e6/164-3e6)/200_000 + 0.5
	c.want(t, 3*164e6, 1_000e6, ReachedInDays, days)
	if !strings.HasPrefix(c.Detail, "3,000,000 IDs") {
		t.Errorf("%q", c.Detail)
	}
	if r.Forecasts[0].Name != c.Name {
		t.Errorf("first %s, want %s", r.Forecasts[0].Name, c.Name)
	}

	// The window is four days and holds 4 M IDs now. Within two days, 2 M of them expire and 2.2 M
	// new ones arrive, so the limit of 4.2 M is then reached.
	long := weekly("EXECUTIONS", 1_000_000, 100_000, "a")
	long.DedupWindow, long.DedupWindowMessages = 4*day, 4_000_000
	r = NewReport(api.Size{At: now}, NATSUsage{Streams: []StreamUsage{long}},
		ConfiguredLimits{NATSMemoryBytes: 4_200_000 * memoryBytesPerDeliveryID})
	wall(
		t,
		r,
		"Memory for delivery IDs",
	).want(t, 4e6*memoryBytesPerDeliveryID, 4.2e6*memoryBytesPerDeliveryID, ReachedInDays, 2)

	// With a single server, the forecasts do not name the server. Its memory and disk are not
	// configured, so there is no limit.
	nats.Streams = nats.Streams[:1]
	nats.Streams[0].Servers = []string{"a"}
	r = NewReport(api.Size{At: now}, nats, ConfiguredLimits{})
	wall(t, r, "Memory for delivery IDs").want(t, 164e6, 0, ReachedNoLimit, 0)
	wall(t, r, "Disk of NATS").want(t, 7e9, 0, ReachedNoLimit, 0)

	// The documentation says that each delivery per second needs 14 MB of memory if that rate lasts
	// for the whole window of one day.
	if perRate := 86_400. * memoryBytesPerDeliveryID; perRate < 14e6 || perRate > 14.5e6 {
		t.Errorf("%v bytes", perRate)
	}
}

// The report has a forecast for the size of each stream, computed from that stream's own age and
// rate, and one for the recorder's lag. A stream without a maximum size is limited only by the
// disk. The registry's stream has neither forecast.
func TestReportOfStreams(t *testing.T) {
	t.Parallel()
	young := weekly("QUEUE_young", 100, 0, "a")
	young.Messages, young.Bytes, young.WeekMessages = 200, 200_000, WeekStats{2, 100, 0}
	young.MaxBytes = 600_000
	full := weekly("QUEUE_full", 100, 0, "a")
	full.MaxBytes = full.Bytes
	behind := weekly("EXECUTIONS", 100, 0, "a")
	behind.UnrecordedMessages, behind.OldestUnrecordedAge = 1_000, 84*time.Hour
	reports := StreamUsage{
		Name: "PROGRESS", Kind: StreamKindReports, Servers: []string{"a"},
		Messages: 10, Bytes: 1_000,
		MaxBytes: 1_000, MaxAge: 7 * day, WeekMessages: WeekStats{7, 1_000, 0},
	}
	registry := StreamUsage{
		Name:    "KV_registry",
		Kind:    StreamKindOther,
		Servers: []string{"a"},
		Bytes:   2_001,
	}
	nats := NATSUsage{
		SharedStreamCreatedAt: now.Add(-30 * day),
		Streams:               []StreamUsage{behind, young, full, reports, registry},
	}
	r := NewReport(api.Size{At: now, Workflows: 10, WorkflowsLastWeek: 7}, nats,
		ConfiguredLimits{NATSDiskBytes: 2_000_000})
	wall(t, r, "Stream EXECUTIONS").want(t, 700_000, 0, ReachedNoLimit, 0)
	// QUEUE_young keeps messages for seven days and is two days old, so it grows for five more
	// days, to 700,000 bytes.
	wall(t, r, "Stream QUEUE_young").want(t, 200_000, 600_000, ReachedInDays, 4)
	wall(t, r, "Stream QUEUE_full").want(t, 700_000, 700_000, ReachedNow, 0)
	wall(t, r, "Stream PROGRESS").want(t, 1_000, 1_000, ReachedDropsOldest, 0)
	wall(t, r, "Recording of EXECUTIONS").want(t, 84*3600, 7*86_400, ReachedNoForecast, 0)
	wall(t, r, "Recording of QUEUE_young").want(t, 0, 7*86_400, ReachedNoForecast, 0)
	wall(t, r, "Disk of NATS").want(t, 1_600_000+1_000+2_001, 2_000_000, ReachedInDays,
		(400_000-3_001)/100_000.)
	if w := wall(t, r, "Registry"); w.Detail != "3 KB in NATS" {
		t.Errorf("%q", w.Detail)
	}
	if advice := wall(t, r, "Stream QUEUE_young").Advice; !strings.Contains(advice,
		"hookstart queue stream set young --max-bytes") {
		t.Errorf("%q", advice)
	}
	for _, w := range r.Forecasts {
		if w.Name == "Stream KV_registry" || w.Name == "Recording of KV_registry" {
			t.Errorf("%s has nothing to record", w.Name)
		}
	}
}

// A stream that keeps messages for less than three days is assumed to grow at the same relative
// rate as the accepted requests.
func TestReportOfAStreamThatKeepsOneDay(t *testing.T) {
	t.Parallel()
	s := weekly("EXECUTIONS", 1_000, 0, "a")
	s.MaxAge, s.Messages, s.Bytes, s.WeekMessages = day, 1_000, 1_000_000, WeekStats{1, 1_000, 0}
	s.MaxBytes = 2_050_000
	size := api.Size{At: now, Hours: hourly(7, func(day int) int64 { return 13 - int64(day) })}
	r := NewReport(size,
		NATSUsage{SharedStreamCreatedAt: now.Add(-30 * day), Streams: []StreamUsage{s}},
		ConfiguredLimits{})
	// The rate grows by a tenth of its mean every day, and the stream keeps the messages of one
	// day. d days from now it holds 1,000 + 100 × (d - ½) messages of 1,000 bytes.
	wall(t, r, "Stream EXECUTIONS").want(t, 1_000_000, 2_050_000, ReachedInDays, 11)
}

// The forecast for the database is computed from the records that are added per day, the mean size
// of a record, and the retention period.
func TestReportOfTheDatabase(t *testing.T) {
	t.Parallel()
	free := int64(10_000_000)
	size := api.Size{
		At: now, Hours: hourly(7, steady(1_000)),
		Database: api.SizeDatabase{
			Kind: "sqlite", Bytes: 50_000_000, ReusableBytes: 2_000_000, FreeBytes: &free,
			Records: 240_000, OldestAcceptedAt: now.Add(-10 * day), RetentionSeconds: 30 * 86_400,
		},
	}
	nats := NATSUsage{SharedStreamCreatedAt: now.Add(-10 * day)}
	// The database has 200 bytes for each of its 240,000 records, and 24,000 records are added per
	// day.
	wall(t, NewReport(size, nats, ConfiguredLimits{}),
		"Database (SQLite)").want(t, 48e6, 60e6, ReachedInDays, 2.5)
	wall(t, NewReport(size, nats, ConfiguredLimits{DatabaseDiskBytes: 145e6}), "Database (SQLite)").
		want(t, 48e6, 145e6, ReachedNotInAYear, 0) // 144 MB after 30 days
	size.Database.FreeBytes, size.Database.Kind = nil, "postgres"
	wall(t, NewReport(size, nats, ConfiguredLimits{}),
		"Database (PostgreSQL)").want(t, 48e6, 0, ReachedNoLimit, 0)
	// With few records, most of the database is empty tables, so its size divided by the number of
	// records would be too large. The record size from the benchmark is used instead.
	size.Database.Records, size.Database.OldestAcceptedAt = 1_000, now.Add(-time.Hour)
	size.Database.RetentionSeconds = 365 * 86_400
	wall(
		t,
		NewReport(size, nats, ConfiguredLimits{DatabaseDiskBytes: 48e6 +
			10*24_000*postgresRecordBytes}),
		"Database (PostgreSQL)",
	).want(t, 48e6, 48e6+10*24_000*postgresRecordBytes, ReachedInDays, 10)
}

// The report contains the limits of the NATS account and how much of each is used, either for the
// whole account or for each tier. It does not contain limits that are not set.
func TestReportOfTheAccount(t *testing.T) {
	t.Parallel()
	unlimited := jetstream.AccountLimits{
		MaxStore: -1, MaxStreams: -1, MaxConsumers: -1, MaxMemory: -1,
	}
	streams := []StreamUsage{
		weekly("EXECUTIONS", 100, 0, "a", "b", "c"), weekly("QUEUE_q", 100, 0, "a"),
	}
	for i := range streams {
		streams[i].Messages, streams[i].Bytes, streams[i].WeekMessages.CoveredDays = 200, 200_000, 2
	}
	report := func(info jetstream.AccountInfo) Report {
		return NewReport(api.Size{At: now}, NATSUsage{
			SharedStreamCreatedAt: now.Add(-30 * day), Streams: streams, Tiers: accountTiers(&info),
		}, ConfiguredLimits{})
	}
	for _, w := range report(jetstream.AccountInfo{
		Tier: jetstream.Tier{Store: 800_000, Limits: unlimited},
	}).Forecasts {
		if strings.HasPrefix(w.Name, "NATS account") {
			t.Errorf("no limits: %+v", w)
		}
	}
	// The account holds four replicas of 200,000 bytes, and grows by 400,000 bytes per day.
	whole := report(jetstream.AccountInfo{Tier: jetstream.Tier{
		Store: 800_000, Streams: 8, Consumers: 50,
		Limits: jetstream.AccountLimits{MaxStore: 2e6, MaxStreams: 8, MaxConsumers: 100},
	}})
	wall(t, whole, "NATS account, storage").want(t, 800_000, 2e6, ReachedInDays, 3)
	wall(t, whole, "NATS account, streams").want(t, 8, 8, ReachedNow, 0)
	wall(t, whole, "NATS account, consumers").want(t, 50, 100, ReachedNoForecast, 0)
	// This stream has one replica, so the forecast for the tier R3 must ignore it.
	streams[1].WeekMessages.PerDay = 1_000
	tiered := report(jetstream.AccountInfo{Tiers: map[string]jetstream.Tier{
		"R1": {Store: 200_000, Limits: unlimited},
		"R3": {Store: 600_000, Limits: jetstream.AccountLimits{MaxStore: 1_200_000}},
	}})
	wall(t, tiered, "NATS account R3, storage").want(t, 600_000, 1_200_000, ReachedInDays, 2)
}

// Forecasts are sorted by when their limits will be reached, soonest first. Of the limits that will
// be reached at the same time or not at all, the fullest comes first. Unknown limits come last.
func TestOrderOfWalls(t *testing.T) {
	t.Parallel()
	at := func(name string, reached ReachedWhen, days, percent float64) LimitForecast {
		w := LimitForecast{Name: name, Reached: reached}
		if reached == ReachedInDays {
			w.DaysLeft = &days
		}
		if reached != ReachedNoLimit {
			w.PercentUsed = &percent
		}
		return w
	}
	walls := []LimitForecast{
		at("unknown", ReachedNoLimit, 0,
			0), at("far", ReachedNotInAYear, 0, 10), at("full", ReachedNotInAYear, 0, 80),
		at("late", ReachedInDays, 300,
			99), at("lag", ReachedNoForecast, 0, 20), at("soon", ReachedInDays, 2, 5),
		at("now", ReachedNow, 0, 100),
	}
	slices.SortStableFunc(walls, compareForecasts)
	var got []string
	for _, w := range walls {
		got = append(got, w.Name)
	}
	if want := "now soon late full lag far unknown"; strings.Join(got, " ") != want {
		t.Errorf("%q, want %q", got, want)
	}
}
