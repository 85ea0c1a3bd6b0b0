// Package events informs an account's operators of what happens: each event starts one execution of
// the workflow that the account has chosen.
//
// An occurrence becomes a cause in the transaction that records it. One executor at a time replaces
// causes by events, also in one transaction: from then on it is fixed which execution reports which
// causes. The start of an event is published until NATS has stored it; its execution ID, which is
// the message ID, is a hash of the event's ID. So whichever process is killed at whatever time,
// each cause is in exactly one event, and each event starts exactly one execution.
package events

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/executor/internal/queues"
	"github.com/hookstart/hookstart/executor/internal/starts"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/retry"
)

const (
	// turnEvery is the interval at which causes become events, and events are published.
	turnEvery = time.Second
	// lookEvery is the interval at which the leading executor looks for conditions. leadFor is the
	// time after which another executor leads if the leading one has ended.
	lookEvery = 5 * time.Second
	leadFor   = 20 * time.Second
	// restEvery is the interval at which an executor works although no account has operator events:
	// causes may be left of an account that had some.
	restEvery = 30 * time.Second
	// turnTimeout is the maximum duration of one turn.
	turnTimeout = 15 * time.Second
	// sayEvery is the minimum time between two log lines about a failure that lasts.
	sayEvery = time.Minute
	// clockSkew is the maximum time by which the clock of a runner may be behind.
	clockSkew = time.Minute
	// maxErrorText is the maximum number of characters of an execution's error in an event.
	maxErrorText = 300
)

// Config holds the parts that Events uses, but does not own.
type Config struct {
	Store     store.Store
	Directory *edit.Directory
	JetStream jetstream.JetStream
	Queues    *queues.Watch
	// Caller identifies this process among the executors: a random UUID.
	Caller string
	// Trusted reports whether the directory is complete, without a remote call: it is not while the
	// registry is being restored.
	Trusted func() bool
	// Current returns an error unless the directory has every change that was made so far.
	Current func(context.Context) error
	// AwaitRecorded waits until everything that the stream holds now is recorded, or its context
	// ends.
	AwaitRecorded func(context.Context)
	// DedupWindow is the time for which the stream remembers message IDs.
	DedupWindow time.Duration
	Log         logrus.FieldLogger
}

// Events makes and publishes the operator events. Run and WatchConditions each have one goroutine.
type Events struct {
	config Config
	starts *starts.Streams
	// paces holds the pace of each sender's requests, by the subject of the condition
	// sender.silent. Only WatchConditions uses it.
	paces map[string]pace

	failing map[string]time.Time // when a failure was last logged, by what failed; only Run uses it
}

// New returns Events.
func New(c Config) *Events {
	return &Events{
		config: c, starts: starts.New(c.JetStream),
		paces: map[string]pace{}, failing: map[string]time.Time{},
	}
}

// FailureCause returns the cause of an event for a failed execution, or nil if the account has not
// chosen such events. While the directory is not trusted, it returns a cause for every failure; the
// decision leaves out causes that no account has chosen.
func (e *Events) FailureCause(f store.Failure) *store.EventCause {
	if e.config.Trusted() {
		setting := e.config.Directory.Events(f.AccountID)
		if !setting.Wants(registry.ExecutionFailed) || f.WorkflowID == setting.WorkflowID ||
			f.At.Before(setting.Since.Add(-clockSkew)) {
			return nil
		}
	}
	text := fmt.Sprintf("Execution %s of workflow %s failed", f.ExecutionID, f.WorkflowID)
	if f.Error != "" {
		text += ": " + shortened(f.Error)
	}
	return &store.EventCause{
		ID:          registry.ExecutionFailed + ":" + f.ExecutionID,
		AccountID:   f.AccountID,
		Kind:        registry.ExecutionFailed,
		WorkflowID:  f.WorkflowID,
		ExecutionID: f.ExecutionID,
		At:          f.At,
		Text:        text,
	}
}

func shortened(text string) string {
	if runes := []rune(text); len(runes) > maxErrorText {
		return string(runes[:maxErrorText]) + "…"
	}
	return text
}

// Run decides and publishes events until the context ends.
func (e *Events) Run(ctx context.Context) {
	e.every(ctx, turnEvery, func(ctx context.Context) {
		e.note("decided", e.decideAll(ctx))
		e.note("published", e.publish(ctx))
	})
}

// WatchConditions looks for conditions until the context ends, while this executor leads.
func (e *Events) WatchConditions(ctx context.Context) {
	e.every(ctx, lookEvery, func(ctx context.Context) {
		now := time.Now()
		if leads, err := e.config.Store.LeadEvents(ctx, e.config.Caller, now,
			now.Add(leadFor)); err != nil || !leads {
			return
		}
		if err := e.updateConditions(ctx, now); err != nil && ctx.Err() == nil {
			e.config.Log.WithError(err).Debug("conditions of operator events could not be looked " +
				"for; it is tried again")
		}
	})
}

// every calls do regularly. It calls do seldom while no account has operator events, and not at all
// while the directory is not trusted.
func (e *Events) every(ctx context.Context, interval time.Duration, do func(context.Context)) {
	var rested time.Time
	retry.Every(ctx, interval, func() {
		if !e.config.Trusted() {
			return
		}
		if len(e.config.Directory.AccountsWithEvents()) == 0 {
			if time.Since(rested) < restEvery {
				return
			}
			rested = time.Now()
		}
		trying, cancel := context.WithTimeout(ctx, turnTimeout)
		defer cancel()
		do(trying)
	})
}

// note logs a failure, at most once a minute.
func (e *Events) note(what string, err error) {
	if err == nil || time.Since(e.failing[what]) < sayEvery {
		return
	}
	e.failing[what] = time.Now()
	e.config.Log.WithError(err).Warnf("operator events were not %s; it is tried again", what)
}
