package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Neighbours measures how calm workflows are affected by another workflow that gets far more
// requests than its rate limit allows. The struct tags define the program's flags.
type Neighbours struct {
	Rounds    int           `help:"How often the calm ones have a turn alone, and one beside the flood." default:"12"`
	Burst     time.Duration `help:"How long a turn is." default:"5s"`
	Workflows int           `help:"Calm workflows." default:"50"`
	Rate      float64       `help:"Requests per second to each of them." default:"10"`
	Limit     int64         `help:"Rate limit of the flooded workflow, requests per second." default:"100"`
	Flood     float64       `help:"It gets so many times its limit." default:"20"`
	LoadOptions
}

func (c *Neighbours) validate() error {
	return errors.Join(
		c.LoadOptions.validate(),
		checkRange("rounds", float64(c.Rounds), 1, maxRounds),
		checkRange("burst", c.Burst.Seconds(), 0.01, maxBurstDuration.Seconds()),
		checkRange("workflows", float64(c.Workflows), 1, 1000),
		checkRange("rate", c.Rate, 0.1, maxRate/float64(c.Workflows)),
		checkRange("limit", float64(c.Limit), 1, maxRate),
		checkRange("flood", c.Flood, 1.1, maxRate/float64(c.Limit)))
}

// neighboursTurnResult holds the results of one turn. turnResult describes the requests to the
// calm workflows. flood describes the requests to the flooded workflow, and is zero if the turn had
// no flood.
type neighboursTurnResult struct {
	turnResult
	flood burstResult
}

// Run makes the measurement and writes its table to c.Out.
func (c *Neighbours) Run(ctx context.Context) (err error) {
	if err := c.validate(); err != nil {
		return err
	}
	at, err := newWorkspace(c.Out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, at.close()) }()
	s, err := at.startSystem(ctx, installWithExecutor, &launcher{
		binFolder: c.Bin,
		folder:    at.folder,
		name:      "neighbours",
		workflows: c.Workflows,
	})
	if err != nil {
		return err
	}
	token, err := s.makeWorkflow(ctx, c.Workflows, c.Limit)
	if err != nil {
		return err
	}
	flooded := requestTarget{
		addr: s.addr, path: firstWebhookPath + "?token=" + token, firstWorkflow: c.Workflows,
	}
	n := &neighboursRun{Neighbours: c, system: s, floodedTarget: flooded}
	var alone []turnResult
	var beside []neighboursTurnResult
	for round := range c.Rounds {
		for half := range 2 {
			flood := (round+half)%2 == 1 // every other round begins with the flood
			at.progress.Show("round %d/%d", round+1, c.Rounds)
			t, err := n.measureCalmWorkflows(ctx, flood)
			if err != nil {
				return err
			}
			if flood {
				beside = append(beside, t)
			} else {
				alone = append(alone, t.turnResult)
			}
		}
	}
	at.progress.Done()
	c.writeResults(alone, beside)
	return nil
}

// neighboursRun holds the state of one Neighbours measurement.
type neighboursRun struct {
	*Neighbours
	*system
	floodedTarget             requestTarget
	calmIDCount, floodIDCount uint64 // delivery IDs that each load has used so far
}

func (n *neighboursRun) measureCalmWorkflows(
	ctx context.Context,
	flood bool,
) (t neighboursTurnResult,
	err error,
) {
	if ctx.Err() != nil {
		return t, errInterrupted
	}
	calm, err := newGenerator(
		n.requestTarget,
		n.Connections,
		n.BodyBytes,
		n.Workflows,
		0,
		&n.calmIDCount,
	)
	if err != nil {
		return t, err
	}
	defer calm.close()
	lead := min(unmeasuredLeadInTime, n.Burst)
	var other *generator
	if flood {
		other, err = newGenerator(n.floodedTarget, n.Connections, n.BodyBytes, 1, 0,
			&n.floodIDCount)
		if err != nil {
			return t, err
		}
		defer other.close()
		other.allow429 = true
	}
	flooding := other.start(lead+n.Burst, n.Flood*float64(n.Limit))
	rate := n.Rate * float64(n.Workflows)
	_, err = calm.run(lead, rate)
	if err == nil {
		t.burstResult, err = calm.run(n.Burst, rate)
	}
	var failure error
	t.flood, failure = flooding()
	if err := errors.Join(err, failure); err != nil {
		return t, err
	}
	return t, errors.Join(n.awaitProcessed(ctx), n.clearStreamsAndLogs(ctx))
}

func (c *Neighbours) writeResults(alone []turnResult, beside []neighboursTurnResult) {
	besides := make([]turnResult, len(beside))
	accepted, limited, allowed := make([]float64, len(beside)), make([]float64, len(beside)),
		make([]float64, len(beside))
	for i, t := range beside {
		besides[i] = t.turnResult
		accepted[i] = float64(t.flood.answered - t.flood.rateLimited)
		limited[i] = float64(t.flood.rateLimited)
		// The workflow has been idle, so the rate limit allows Limit requests at once, and then
		// Limit requests per second.
		allowed[i] = float64(c.Limit) * (1 + t.flood.took.Seconds())
	}
	title := fmt.Sprintf("%d calm workflows with %g requests per second each; beside them one "+
		"gets %g, %g times its limit. Median of %d rounds of %s (quartiles), ms.",
		c.Workflows, c.Rate, c.Flood*float64(c.Limit), c.Flood, c.Rounds, c.Burst)
	percentiles := []float64{0.5, 0.99}
	writeTable(c.Out, title, "the calm ones\tp50\tp99", func(w io.Writer) {
		row := func(name string, numbers func(q float64) quartiles) {
			_, _ = fmt.Fprint(w, name)
			for _, q := range percentiles {
				_, _ = fmt.Fprint(w, "\t", numbers(q).format("%.2f"))
			}
			_, _ = fmt.Fprintln(w)
		}
		row("alone", func(q float64) quartiles {
			return quartilesOf(valuesOf(alone, latencyQuantile(q)))
		})
		row("beside the flood", func(q float64) quartiles {
			return quartilesOf(valuesOf(besides, latencyQuantile(q)))
		})
		row("ratio, round by round", func(q float64) quartiles {
			return ratioQuartiles(besides, alone, latencyQuantile(q))
		})
	})
	_, _ = fmt.Fprintf(c.Out,
		"\nAnswers to the flood in each round: 200: %s, at most %s by its limit; 429: %s\n",
		quartilesOf(accepted).format("%.0f"), quartilesOf(allowed).format("%.0f"),
		quartilesOf(limited).format("%.0f"))
}
