package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/cmd/hookstart/internal/secondsite"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/stream"
)

type secondSiteCmds struct {
	Copy     secondSiteCopyCmd     `cmd:"" help:"Begin to copy, or give the copies the first site's present settings."`
	Status   secondSiteStatusCmd   `cmd:"" help:"Show how far the copies are."`
	TakeOver secondSiteTakeOverCmd `cmd:"" name:"take-over" help:"Make the copies accept messages, after the first site was lost."`
}

type secondSiteCopyCmd struct {
	Replicas int           `help:"Number of NATS servers of the second site that keep each copy." default:"1"`
	Wait     time.Duration `help:"How long to wait for the first site, and until NATS has made the copies." default:"1m"`

	natsFlags
}

func (*secondSiteCopyCmd) Help() string {
	return `Connects to the NATS servers of the second site, which need a leaf node connection to
the first site, and an admin's key. It can be repeated: repeat it after a queue got a stream of
its own, and after the settings of the streams were changed. deploy/docs/regions.md has all
steps.

Example:

  hookstart admin second-site copy --nats-url tls://second:4222 --nats-creds admin.nk`
}

func (v *secondSiteCopyCmd) Run(s *session) error {
	js, err := v.connect(s.ctx)
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	first, err := jetstream.NewWithAPIPrefix(js.Conn(), secondsite.FirstSiteAPIPrefix)
	if err != nil {
		return err
	}
	site := secondsite.Site{JetStream: js, FirstSite: first}
	ctx, cancel := context.WithTimeout(s.ctx, v.Wait)
	defer cancel()
	// Retry, because the leaf node connection may not have been established yet.
	retry.Until(ctx, 250*time.Millisecond, func() bool {
		if failed := site.EnsureMirrors(ctx, v.Replicas); err == nil || ctx.Err() == nil {
			err = failed // if this error is only the timeout, keep the previous one
		}
		return !errors.Is(err, nats.ErrNoResponders)
	})
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return &hintError{
			fmt.Errorf("the first site cannot be reached: %w", err),
			"deploy/nats/second-site.conf connects the servers",
		}
	case err != nil:
		return withTooFewServersHint(err)
	}
	return v.awaitContactAndShow(ctx, s, site)
}

// awaitContactAndShow waits until every copied stream has been in contact with the first site, and
// then prints the state of the copies.
func (v *secondSiteCopyCmd) awaitContactAndShow(
	ctx context.Context, s *session, site secondsite.Site,
) error {
	var all []secondsite.MirrorState
	var err error
	retry.Until(ctx, 100*time.Millisecond, func() bool {
		all, err = site.MirrorStates(s.ctx)
		return err != nil || !slices.ContainsFunc(all, neverInContact)
	})
	if err != nil {
		return err
	}
	if err := showMirrorStates(s, all); err != nil {
		return err
	}
	if slices.ContainsFunc(all, neverInContact) {
		return &hintError{
			fmt.Errorf("the copies were made, but NATS copied nothing within %s", v.Wait),
			"hookstart admin second-site status shows what is wrong",
		}
	}
	return nil
}

// neverInContact reports whether a copied stream has had no contact with the first site since the
// copy was created or its server was started.
func neverInContact(c secondsite.MirrorState) bool { return !c.Promoted && c.SinceContact < 0 }

type secondSiteStatusCmd struct {
	MaxBehind time.Duration `help:"The exit code is 1 if the first site was not heard for longer, or if messages are missing and the last copied one is older." default:"1m"`
	Metrics   bool          `help:"Print metrics in Prometheus's text format, for the textfile collector of its node exporter. The exit code is 0 if NATS answers."`

	natsFlags
}

func (*secondSiteStatusCmd) Help() string {
	return `Shows each copy: the time of its last message at the first site, how many messages it
lacks, and when the first site was heard last. While the first site cannot be reached, the number
of messages that are missing is the last known one.

The exit code is 1 if a copy stands still or falls behind, if a queue has a stream of its own that
is not copied, and if there is no copy at all.

Examples:

  hookstart admin second-site status --nats-url tls://second:4222 --nats-creds admin.nk
  hookstart admin second-site status --metrics >second-site.prom`
}

// mirrorSettleTimeout is how long "status" waits for a problem with a copy to disappear before it
// reports the problem. Two problems are temporary: a new copy has not been in contact with the
// first site yet, and a copy seems to be behind for a moment when the first message after a long
// pause arrives.
const mirrorSettleTimeout = 5 * time.Second

func (v *secondSiteStatusCmd) Run(s *session) error {
	js, err := v.connect(s.ctx)
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	first, err := jetstream.NewWithAPIPrefix(js.Conn(), secondsite.FirstSiteAPIPrefix)
	if err != nil {
		return err
	}
	site := secondsite.Site{JetStream: js, FirstSite: first}
	if v.Metrics {
		return v.printMetrics(s, site)
	}
	var all []secondsite.MirrorState
	waiting, cancel := context.WithTimeout(s.ctx, mirrorSettleTimeout)
	defer cancel()
	retry.Until(waiting, 250*time.Millisecond, func() bool {
		all, err = site.MirrorStates(s.ctx)
		return err != nil || !slices.ContainsFunc(all, func(c secondsite.MirrorState) bool {
			return neverInContact(c) || c.IsLagging(s.now(), v.MaxBehind)
		})
	})
	if err != nil {
		return withNotMirroredHint(err)
	}
	if err := showMirrorStates(s, all); err != nil {
		return err
	}
	problems := mirrorProblems(all, s.now(), v.MaxBehind)
	if len(problems) > 0 {
		return errors.New(strings.Join(problems, "; "))
	}
	names := uncopiedStreams(s.ctx, site, all)
	if len(names) == 0 {
		return nil
	}
	return &hintError{
		fmt.Errorf("not copied: %s", strings.Join(names, ", ")),
		"repeat hookstart admin second-site copy after a queue got a stream of its own",
	}
}

// withNotMirroredHint adds a hint if err is secondsite.ErrNotMirrored, which means that a site has
// no copies. It returns any other error unchanged.
func withNotMirroredHint(err error) error {
	if errors.Is(err, secondsite.ErrNotMirrored) {
		return &hintError{
			err, "--nats-url must name the servers of the second site; hookstart admin " +
				"second-site copy begins to copy",
		}
	}
	return err
}

// mirrorProblems returns one text for each copied stream that lags behind, and a single text for
// all copied streams that have lost contact with the first site. The text about lost contact
// contains the time of the last contact or, if that is unknown, of the newest message.
func mirrorProblems(
	all []secondsite.MirrorState,
	now time.Time,
	limit time.Duration,
) (problems []string) {
	var silent []string
	var heard time.Time // earliest last contact with the first site, among the silent streams
	var last time.Time  // time of the newest message, among the silent streams
	why := ""
	for _, c := range all {
		switch {
		case c.IsStalled(limit):
			silent = append(silent, c.Stream)
			if at := now.Add(-c.SinceContact); c.SinceContact >= 0 &&
				(heard.IsZero() || at.Before(heard)) {
				heard = at
			}
			if c.LastStoredAt.After(last) {
				last = c.LastStoredAt
			}
			if c.MirrorError != "" {
				why = " (" + c.MirrorError + ")"
			}
		case c.IsLagging(now, limit):
			problems = append(problems, fmt.Sprintf("the copy of %s lacks %d messages, and its "+
				"last one was stored %s", c.Stream, c.MissingMessages,
				agoAndExact(c.LastStoredAt, now)))
		}
	}
	if len(silent) == 0 {
		return problems
	}
	since := "the first site was heard last " + agoAndExact(heard, now)
	if heard.IsZero() {
		since = "the first site was not heard since NATS started here"
		if !last.IsZero() {
			since += ", and the last message was stored " + agoAndExact(last, now)
		}
	}
	return append(problems, "nothing is copied of "+strings.Join(silent, ", ")+why+": "+since)
}

// uncopiedStreams returns the names of the streams of the first site that are not copied. It
// returns none after the takeover, when nothing is copied any more. It also returns none while the
// first site is unreachable, because the state of the copies already shows the lost connection.
func uncopiedStreams(
	ctx context.Context,
	site secondsite.Site,
	all []secondsite.MirrorState,
) []string {
	if len(all) > 0 && all[0].Promoted {
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, mirrorSettleTimeout)
	defer cancel()
	names, err := site.UnmirroredStreams(asking)
	if err != nil {
		return nil
	}
	return names
}

// printMetrics prints the state of each copy as metrics. They contain times rather than ages, so
// that an age computed from them keeps growing when the metrics file is no longer updated.
func (v *secondSiteStatusCmd) printMetrics(s *session, site secondsite.Site) error {
	all, err := site.MirrorStates(s.ctx)
	if err != nil {
		return withNotMirroredHint(err)
	}
	var text strings.Builder
	head := func(name, help string) {
		fmt.Fprintf(&text, "# HELP hookstart_second_site_%[1]s %[2]s\n"+
			"# TYPE hookstart_second_site_%[1]s gauge\n", name, help)
	}
	for _, metric := range []struct {
		name, help string
		value      func(secondsite.MirrorState) float64
	}{
		{
			"missing_messages",
			"Messages that the copy of a stream lacks, as far as its servers know.",
			func(c secondsite.MirrorState) float64 { return float64(c.MissingMessages) },
		},
		{
			"heard_timestamp_seconds",
			"When the first site was heard last, in Unix time; 0: not since NATS started here.",
			func(c secondsite.MirrorState) float64 {
				return unixOrZero(s.now().Add(-c.SinceContact), c.SinceContact >= 0)
			},
		},
		{
			"stored_timestamp_seconds",
			"When the copy's last message was stored at the first site, in Unix time; 0: none.",
			func(c secondsite.MirrorState) float64 {
				return unixOrZero(c.LastStoredAt, !c.LastStoredAt.IsZero())
			},
		},
	} {
		head(metric.name, metric.help)
		for _, c := range all {
			if !c.Promoted {
				fmt.Fprintf(&text, "hookstart_second_site_%s{stream=%q} %s\n", metric.name,
					c.Stream, strconv.FormatFloat(metric.value(c), 'f', -1, 64))
			}
		}
	}
	head("uncopied_streams", "Streams of the first site that are not copied.")
	fmt.Fprintf(&text, "hookstart_second_site_uncopied_streams %d\n",
		len(uncopiedStreams(s.ctx, site, all)))
	_, err = io.WriteString(s.Out, text.String())
	return err
}

// unixOrZero returns the Unix time of t in seconds, or 0 if known is false.
func unixOrZero(t time.Time, known bool) float64 {
	if !known {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

type secondSiteTakeOverCmd struct {
	RunnerGroups []string `help:"The groups of runners, as for executors: queue/group, comma-separated. Their consumers begin with what has not ended." required:"" placeholder:"QUEUE/GROUP"`
	Yes          bool     `help:"Confirm that the first site accepts nothing any more."`

	natsFlags
}

func (*secondSiteTakeOverCmd) Help() string {
	return `Before it, make sure that the first site accepts nothing any more, for good. What the
first site has accepted and the copies lack is lost. Start executors and ingresses of the second
site after it. It can be repeated if it was interrupted. There is no way back to a copy.

Example:

  hookstart admin second-site take-over --runner-groups default/main --yes`
}

func (v *secondSiteTakeOverCmd) Run(s *session) error {
	var groups []stream.RunnerGroup
	for _, text := range v.RunnerGroups {
		group, err := stream.ParseRunnerGroup(text)
		if err != nil {
			return &usageError{
				"--runner-groups: " + err.Error(), "hookstart admin second-site take-over --help",
			}
		}
		groups = append(groups, group)
	}
	if !v.Yes {
		return &hintError{
			errors.New("what the first site accepts from now on will be lost"),
			"make sure that it accepts nothing any more, then repeat it with --yes",
		}
	}
	js, err := v.connect(s.ctx)
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	p, err := secondsite.Site{JetStream: js}.Promote(s.ctx, groups)
	if err != nil {
		return withNotMirroredHint(err)
	}
	s.printNote("The second site may accept requests. Runners are given %d executions without a "+
		"final report.", p.Republished)
	return showMirrorStates(s, p.States)
}

func showMirrorStates(s *session, all []secondsite.MirrorState) error {
	items := []map[string]any{}
	rows := [][]string{{"STREAM", "LAST MESSAGE", "STORED", "MISSING", "FIRST SITE HEARD"}}
	for _, c := range all {
		missing, heard := strconv.FormatUint(c.MissingMessages, 10), "never"
		switch {
		case c.Promoted:
			missing, heard = "–", "no copy any more"
		case c.SinceContact >= 0:
			heard = fmt.Sprintf("%s ago", c.SinceContact.Round(time.Millisecond))
		}
		rows = append(rows, []string{
			c.Stream, strconv.FormatUint(c.LastSequence, 10), agoOr(c.LastStoredAt, s.now(), "–"),
			missing, heard,
		})
		items = append(items, map[string]any{
			"stream": c.Stream, "messages": c.Messages, "lastSequence": c.LastSequence,
			"lastStoredAt": c.LastStoredAt, "missing": c.MissingMessages,
			"heardSecondsAgo": c.SinceContact.Seconds(),
			"promoted":        c.Promoted, "problem": c.MirrorError,
		})
	}
	return s.printValue(map[string]any{"items": items}, func() error { return s.printRows(rows) })
}
