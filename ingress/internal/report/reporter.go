package report

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/sirupsen/logrus"
)

// reporter sends counts to the executors at a fixed interval.
type reporter struct {
	js       jetstream.JetStream
	log      logrus.FieldLogger
	what     string // description of the counted items, for the log
	interval time.Duration
	// nextReport returns the message with the counts since the last call, or nil if there are none.
	nextReport func() (*nats.Msg, error)

	pending *nats.Msg // an unconfirmed report; it is resent unchanged, so that it counts only once
}

func newReporter(
	js jetstream.JetStream, log logrus.FieldLogger, what string, interval time.Duration,
	nextReport func() (*nats.Msg, error),
) reporter {
	return reporter{js: js, log: log, what: what, interval: interval, nextReport: nextReport}
}

// Run sends the counts at each interval until the context is done. It then tries once to send the
// remaining counts, and drops them if the stream does not accept them.
func (r *reporter) Run(ctx context.Context) {
	tick := time.NewTicker(r.interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.send(ctx)
		case <-ctx.Done():
			r.send(ctx)
			if r.pending == nil {
				r.send(ctx) // what was counted while an earlier report was unconfirmed
			}
			return
		}
	}
}

func (r *reporter) send(ctx context.Context) {
	if r.pending == nil {
		msg, err := r.nextReport()
		if err != nil {
			r.log.WithError(err).Errorf("a report of %s cannot be encoded", r.what)
			return
		}
		if r.pending = msg; msg == nil {
			return
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	_, err := r.js.PublishMsg(ctx, r.pending)
	if errors.Is(err, nats.ErrMaxPayload) {
		r.log.WithError(err).WithField("bytes", len(r.pending.Data)).
			Errorf("a report of %s is lost: it is longer than NATS allows", r.what)
		r.pending = nil // the stream would never accept it, and it would block all later reports
		return
	}
	if err != nil {
		r.log.WithError(err).Debugf("a report of %s was not taken; it is sent again", r.what)
		return
	}
	r.pending = nil
}
