package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hookstart/hookstart/executor/cmd/hookstart/internal/sizing"
	"github.com/hookstart/hookstart/executor/internal/humantext"
)

// adminSizeCmd implements "hookstart admin size", which reports how far an installation is from its
// limits. It gets the request counts and the size of the database from the operators' API, and
// everything else directly from NATS.
type adminSizeCmd struct {
	NATSMemory   int64   `name:"nats-memory" help:"Memory that each NATS server has for delivery IDs, in bytes. 0: not known." placeholder:"BYTES"`
	NATSDisk     int64   `name:"nats-disk" help:"Size of the disk of each NATS server, in bytes. 0: not known." placeholder:"BYTES"`
	DatabaseDisk int64   `help:"Size of the disk of the database, in bytes. 0: of SQLite, its size and the free space of its disk; of PostgreSQL, not known." placeholder:"BYTES"`
	MaxRate      float64 `help:"Deliveries per second that your machines can handle, from make bench. The default is what two cores with everything on them could. 0: not known." default:"12000"`
	Advice       bool    `help:"Say what to do about every limit, and not only about those that are half used up, or are reached within a year."`

	natsFlags
}

func (*adminSizeCmd) Help() string {
	return `Shows how far the installation is from each of its limits, and what to do about it: from
the requests of its last week, the database and NATS. A day is counted to grow by as much
as the days of the last week did; so a limit may come sooner, or never.

It needs a key with the role admin, and an executor's credentials for NATS.

Examples:

  hookstart admin size
  hookstart admin size --nats-memory 8000000000 --database-disk 500000000000`
}

func (v *adminSizeCmd) Run(s *session) error {
	for _, limit := range []struct {
		flag  string
		value float64
	}{
		{"--nats-memory", float64(v.NATSMemory)},
		{"--nats-disk", float64(v.NATSDisk)},
		{"--database-disk", float64(v.DatabaseDisk)},
		{"--max-rate", v.MaxRate},
	} {
		if !(limit.value >= 0) { // also true for NaN
			return &usageError{limit.flag + " must not be negative", "hookstart admin size --help"}
		}
	}
	size, err := s.client.Size(s.ctx)
	if err != nil {
		return err
	}
	js, err := v.connect(s.ctx)
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	held, err := sizing.ReadNATSUsage(s.ctx, js)
	if err != nil {
		return err
	}
	report := sizing.NewReport(size, held, sizing.ConfiguredLimits{
		NATSMemoryBytes:        v.NATSMemory,
		NATSDiskBytes:          v.NATSDisk,
		DatabaseDiskBytes:      v.DatabaseDisk,
		MaxDeliveriesPerSecond: v.MaxRate,
	})
	return s.printValue(report, func() error { return v.printReport(s, report) })
}

func (v *adminSizeCmd) printReport(s *session, r sizing.Report) error {
	if !r.CoversWeek {
		data := "of one hour or less"
		if r.CoveredDays*24 > 1 {
			data = "of " + formatDays(r.CoveredDays)
		}
		if err := s.printLine(
			"There is no week of data yet, only %s. What follows is a rough estimate.",
			data,
		); err != nil {
			return err
		}
	}
	text := fmt.Sprintf("Deliveries: %s on average", formatRate(r.DeliveriesPerSecond))
	if !r.BusiestHour.IsZero() {
		text += fmt.Sprintf(", %s in the busiest hour (%s)", formatRate(r.BusiestPerSecond),
			r.BusiestHour.UTC().Format("2006-01-02 15:04 UTC"))
	}
	if r.GrowthPerDay != nil {
		text += fmt.Sprintf(", %+.1f %% a day", *r.GrowthPerDay*100)
	} else {
		text += "; too few days to see growth"
	}
	if err := s.printLine("%s.", text); err != nil {
		return err
	}
	rows := [][]string{{"LIMIT OF", "NOW", "LIMIT", "USED", "REACHED"}}
	for _, w := range r.Forecasts {
		now, limit, used := formatAmount(w.CurrentAmount, w.Unit), "–", "–"
		if w.Detail != "" {
			now += " (" + w.Detail + ")"
		}
		if w.Limit != nil {
			limit, used = formatAmount(*w.Limit, w.Unit), formatPercent(*w.PercentUsed)
		}
		rows = append(rows, []string{w.Name, now, limit, used, limitReachedText(w)})
	}
	if err := s.printRows(rows); err != nil {
		return err
	}
	if err := s.printLine(""); err != nil {
		return err
	}
	var unknown []string
	if v.NATSMemory == 0 {
		unknown = append(unknown, "--nats-memory")
	}
	if v.NATSDisk == 0 {
		unknown = append(unknown, "--nats-disk")
	}
	if len(unknown) > 0 {
		if err := s.printLine("To see the limits of the NATS servers, say how much they have: %s.",
			strings.Join(unknown, ", ")); err != nil {
			return err
		}
	}
	return v.showAdvice(s, r.Forecasts)
}

// minAdvicePercent is the usage, in percent of a limit, from which advice about the limit is
// printed even if the limit will not be reached soon.
const minAdvicePercent = 50

// showAdvice prints advice about the limits that will be reached soon. Limits with the same advice
// share one line.
func (v *adminSizeCmd) showAdvice(s *session, forecasts []sizing.LimitForecast) error {
	var order []string
	names := map[string][]string{}
	for _, w := range forecasts {
		near := w.Reached == sizing.ReachedNow || w.Reached == sizing.ReachedInDays ||
			w.PercentUsed != nil && *w.PercentUsed >= minAdvicePercent &&
				w.Reached != sizing.ReachedDropsOldest
		if !near && !v.Advice {
			continue
		}
		if names[w.Advice] == nil {
			order = append(order, w.Advice)
		}
		names[w.Advice] = append(names[w.Advice], w.Name)
	}
	for _, advice := range order {
		if err := s.printLine("%s: %s", strings.Join(names[advice], ", "), advice); err != nil {
			return err
		}
	}
	if v.Advice {
		return nil
	}
	if len(order) == 0 {
		return s.printLine(
			"No limit that is known comes near. --advice says what to do about each.",
		)
	}
	return s.printLine("--advice says what to do about the others.")
}

// limitReachedText returns a text that says when a limit will be reached, such as "in 5 days". It
// returns a dash if the time is unknown or if there is no limit.
func limitReachedText(w sizing.LimitForecast) string {
	switch w.Reached {
	case sizing.ReachedNow:
		return "now"
	case sizing.ReachedInDays:
		if *w.DaysLeft < 1 {
			return "within a day"
		}
		return "in " + strconv.Itoa(int(*w.DaysLeft)) + " days"
	case sizing.ReachedNotInAYear:
		return "not within a year"
	case sizing.ReachedDropsOldest:
		return "drops the oldest"
	case sizing.ReachedNoLimit, sizing.ReachedNoForecast:
	}
	return "–"
}

// formatAmount formats a number with its unit. It scales bytes up to TB.
func formatAmount(n float64, unit sizing.Unit) string {
	switch unit {
	case sizing.UnitBytes:
		for _, u := range []string{"B", "KB", "MB", "GB"} {
			if n < 1000 {
				return formatTwoDigits(n) + " " + u
			}
			n /= 1000
		}
		return formatTwoDigits(n) + " TB"
	case sizing.UnitPerSecond:
		return formatRate(n)
	case sizing.UnitSeconds:
		return humantext.Duration(time.Duration(n * float64(time.Second)))
	case sizing.UnitWorkflows, sizing.UnitStreams, sizing.UnitConsumers:
	}
	return sizing.FormatCount(n, strings.TrimSuffix(string(unit), "s"))
}

// formatRate formats a rate. It converts the rate from events per second to the most readable of
// /s, /h and /day.
func formatRate(perSecond float64) string {
	switch {
	case perSecond == 0 || perSecond >= 0.1:
		return formatTwoDigits(perSecond) + "/s"
	case perSecond >= 1.0/3600:
		return formatTwoDigits(perSecond*3600) + "/h"
	default:
		return formatTwoDigits(perSecond*86400) + "/day"
	}
}

// formatPercent formats a percentage with about two significant digits.
func formatPercent(n float64) string {
	if n > 0 && n < 0.01 {
		return "< 0.01 %"
	}
	return formatTwoDigits(n) + " %"
}

// formatTwoDigits formats a number with about two significant digits. It never drops digits before
// the decimal point.
func formatTwoDigits(n float64) string {
	switch {
	case n == 0 || n >= 10:
		return strconv.FormatFloat(n, 'f', 0, 64)
	case n >= 1:
		return strconv.FormatFloat(n, 'f', 1, 64)
	default:
		return strconv.FormatFloat(n, 'g', 2, 64)
	}
}

// formatDays formats a number of days as a duration in its largest unit, such as "3 h".
func formatDays(n float64) string {
	return humantext.Duration(time.Duration(n * 24 * float64(time.Hour)))
}
