package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/cmd/hookstart/internal/secondsite"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/stream"
)

type adminSecondSite struct {
	Copy     secondSiteCopy     `cmd:"" help:"Begin to copy, or give the copies the first site's present settings."`
	Status   secondSiteStatus   `cmd:"" help:"Show how far the copies are."`
	TakeOver secondSiteTakeOver `cmd:"" name:"take-over" help:"Make the copies accept messages, after the first site was lost."`
}

type secondSiteCopy struct {
	Replicas int           `help:"Number of NATS servers of the second site that keep each copy." default:"1"`
	Wait     time.Duration `help:"How long to wait for the first site, and until NATS has made the copies." default:"1m"`

	natsFlags
}

func (*secondSiteCopy) Help() string {
	return `Connects to the NATS servers of the second site, which need a leaf node connection to
the first site, and an admin's key. It can be repeated: after the settings of the streams were
changed at the first site, repeat it. deploy/docs/regions.md has all steps.

Example:

  hookstart admin second-site copy --nats-url tls://second:4222 --nats-creds admin.nk`
}

func (v *secondSiteCopy) Run(s *session) error {
	js, err := v.connect(s.ctx)
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	first, err := jetstream.NewWithAPIPrefix(js.Conn(), secondsite.FirstAPI)
	if err != nil {
		return err
	}
	site := secondsite.Site{JetStream: js, First: first}
	ctx, cancel := context.WithTimeout(s.ctx, v.Wait)
	defer cancel()
	// The leaf node connection may not be made yet.
	retry.Until(ctx, 250*time.Millisecond, func() bool {
		err = site.Copy(ctx, v.Replicas)
		return !errors.Is(err, nats.ErrNoResponders)
	})
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return &hintError{
			fmt.Errorf("the first site cannot be reached: %w", err),
			"deploy/nats/second-site.conf connects the servers",
		}
	case errors.Is(err, secondsite.ErrOwnStreams):
		return &hintError{err, "move them back first: hookstart queue --help"}
	case err != nil:
		return withServersHint(err)
	}
	all, err := site.State(ctx)
	if err != nil {
		return err
	}
	return showCopies(s, all)
}

type secondSiteStatus struct{ natsFlags }

func (*secondSiteStatus) Help() string {
	return `Shows each copy: the time of its last message at the first site, how many messages it
lacks, and when the first site was heard last. While the first site cannot be reached, the number
of messages that are missing is the last known one.

Example:

  hookstart admin second-site status --nats-url tls://second:4222 --nats-creds admin.nk`
}

func (v *secondSiteStatus) Run(s *session) error {
	js, err := v.connect(s.ctx)
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	all, err := secondsite.Site{JetStream: js}.State(s.ctx)
	if err != nil {
		return err
	}
	return showCopies(s, all)
}

type secondSiteTakeOver struct {
	RunnerGroups []string `help:"The groups of runners, as for executors: queue/group, comma-separated. Their consumers begin with what has not ended." required:"" placeholder:"QUEUE/GROUP"`
	Yes          bool     `help:"Confirm that the first site accepts nothing any more."`

	natsFlags
}

func (*secondSiteTakeOver) Help() string {
	return `Before it, make sure that the first site accepts nothing any more, for good. What the
first site has accepted and the copies lack is lost. Start executors and ingresses of the second
site after it. It can be repeated if it was interrupted. There is no way back to a copy.

Example:

  hookstart admin second-site take-over --runner-groups default/main --yes`
}

func (v *secondSiteTakeOver) Run(s *session) error {
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
		return err
	}
	s.note("The second site may accept requests. Runners are given %d executions without a "+
		"final report.", p.Unfinished)
	return showCopies(s, p.State)
}

func showCopies(s *session, all []secondsite.Copied) error {
	items := []map[string]any{}
	rows := [][]string{{"STREAM", "LAST MESSAGE", "STORED", "MISSING", "FIRST SITE HEARD"}}
	for _, c := range all {
		missing, heard := strconv.FormatUint(c.Lag, 10), "never"
		switch {
		case c.Promoted:
			missing, heard = "–", "no copy any more"
		case c.Heard >= 0:
			heard = fmt.Sprintf("%s ago", c.Heard.Round(time.Millisecond))
		}
		rows = append(rows, []string{
			c.Stream, strconv.FormatUint(c.Last, 10), agoOr(c.At, s.now(), "–"), missing, heard,
		})
		items = append(items, map[string]any{
			"stream": c.Stream, "messages": c.Messages, "lastSequence": c.Last,
			"lastStoredAt": c.At, "missing": c.Lag, "heardSecondsAgo": c.Heard.Seconds(),
			"promoted": c.Promoted,
		})
	}
	return s.printOwn(map[string]any{"items": items}, func() error { return s.rows(rows) })
}
