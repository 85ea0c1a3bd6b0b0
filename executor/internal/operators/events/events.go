// Package events tells an account's operators when something happens, for example when an execution
// fails: each event starts one execution of the workflow that the account has selected.
//
// An occurrence, such as the failure of an execution, is first stored as a cause, in the same
// database transaction that records the occurrence itself. One executor at a time replaces causes
// with events, in one transaction that determines which execution reports which causes. Executors
// publish an event's start message repeatedly until NATS has stored the message. The ID of the
// execution depends only on the event, and is also the message ID. Therefore, each cause is in
// exactly one event, and each event starts exactly one execution, even if processes crash.
package events

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/executor/internal/operators/queues"
	"github.com/hookstart/hookstart/executor/internal/starts"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/retry"
)

const (
	// publishInterval is the interval at which causes are turned into events and events are
	// published.
	publishInterval = time.Second
	// conditionCheckInterval is the interval at which the leading executor checks for conditions.
	// leaseDuration is how long the lease of the leading executor lasts: if this executor crashes,
	// another one takes over after this time.
	conditionCheckInterval = 5 * time.Second
	leaseDuration          = 20 * time.Second
	// idleInterval is the minimum interval at which Run and WatchConditions do their work while no
	// account subscribes to operator events. They do not stop entirely, because the store may hold
	// causes of an account that has unsubscribed.
	idleInterval = 30 * time.Second
	// loopPassTimeout is the maximum duration of one pass of Run (turning causes into events and
	// publishing the events) or of WatchConditions (checking for conditions).
	loopPassTimeout = 15 * time.Second
	// queuePublishTimeout is the maximum time for publishing one batch of a queue's events. It is a
	// fraction of loopPassTimeout, so that a queue that does not respond leaves time for the
	// others.
	queuePublishTimeout = 5 * time.Second
	// failureLogInterval is the minimum interval between log lines about a persistent failure.
	failureLogInterval = time.Minute
	// clockSkew is how far a runner's clock may lag. A failure is therefore reported even if its
	// time is up to clockSkew before the account subscribed to operator events.
	clockSkew = time.Minute
	// maxErrorText is the maximum number of characters of an execution's error in an event's text.
	maxErrorText = 300
)

// Config holds the dependencies of an Events, which does not own them.
type Config struct {
	Store interface {
		store.Events
		store.Records
		store.Senders
		store.TokenUseStore
	}
	RegistryIndex *edit.RegistryIndex
	JetStream     jetstream.JetStream
	Queues        *queues.Watcher
	// ExecutorID is a random UUID that identifies this process among the executors.
	ExecutorID string
	// RegistryIndexComplete reports, without a remote call, whether the index is complete. It is
	// incomplete while the registry is being restored.
	RegistryIndexComplete func() bool
	// EnsureRegistryIndexCurrent returns an error if the index lacks any change made before the
	// call.
	EnsureRegistryIndexCurrent func(context.Context) error
	// AwaitRecorded waits until everything in a queue's streams at the time of the call is
	// recorded, or until its context is done.
	AwaitRecorded func(ctx context.Context, queue string)
	// DedupWindow is the length of the stream's deduplication window.
	DedupWindow time.Duration
	Log         logrus.FieldLogger
}

// Events creates and publishes operator events. Run and WatchConditions must each be called by a
// single goroutine.
type Events struct {
	config       Config
	startStreams *starts.Streams
	// paceByTrigger caches the usual pace of the requests to each trigger node, to detect silent
	// senders. The key is the subject of the node's sender.silent event. Only WatchConditions uses
	// paceByTrigger, so it needs no lock.
	paceByTrigger map[string]requestPace

	mu              sync.Mutex
	failureLoggedAt map[string]time.Time // when each failure was last logged, by its message
}

// New returns an Events with the given dependencies. It does nothing until Run or WatchConditions
// is called.
func New(c Config) *Events {
	return &Events{
		config: c, startStreams: starts.New(c.JetStream),
		paceByTrigger: map[string]requestPace{}, failureLoggedAt: map[string]time.Time{},
	}
}

// FailureCause returns the cause of an event about a failed execution, or nil if the account has
// not subscribed to this failure. While the index is incomplete, it returns a cause for every
// failure; decideEvents later drops the causes to which no account subscribes.
func (e *Events) FailureCause(f store.ExecutionFailure) *store.EventCause {
	if e.config.RegistryIndexComplete() {
		setting := e.config.RegistryIndex.EventSubscription(f.AccountID)
		if !setting.Wants(registry.EventExecutionFailed) || f.WorkflowID == setting.WorkflowID ||
			f.At.Before(setting.SubscribedAt.Add(-clockSkew)) {
			return nil
		}
	}
	text := fmt.Sprintf("Execution %s of workflow %s failed", f.ExecutionID, f.WorkflowID)
	if f.Error != "" {
		text += ": " + truncateErrorText(f.Error)
	}
	return &store.EventCause{
		ID:          registry.EventExecutionFailed + ":" + f.ExecutionID,
		AccountID:   f.AccountID,
		Kind:        registry.EventExecutionFailed,
		WorkflowID:  f.WorkflowID,
		ExecutionID: f.ExecutionID,
		At:          f.At,
		Text:        text,
	}
}

func truncateErrorText(text string) string {
	if runes := []rune(text); len(runes) > maxErrorText {
		return string(runes[:maxErrorText]) + "…"
	}
	return text
}

// Run turns causes into events and publishes the events, at intervals, until the context is done.
func (e *Events) Run(ctx context.Context) {
	e.runPeriodically(ctx, publishInterval, func(ctx context.Context) {
		e.logFailure(ctx, "could not decide operator events; retrying", e.turnCausesIntoEvents(ctx))
		e.logFailure(ctx, "could not publish operator events; retrying", e.publishEvents(ctx))
	})
}

// WatchConditions checks for conditions until the context is done. It does nothing while another
// executor holds the lease.
func (e *Events) WatchConditions(ctx context.Context) {
	e.runPeriodically(ctx, conditionCheckInterval, func(ctx context.Context) {
		now := time.Now()
		leads, err := e.config.Store.AcquireConditionLease(ctx, e.config.ExecutorID, now,
			now.Add(leaseDuration))
		if leads && err == nil {
			err = e.updateConditions(ctx, now)
		}
		e.logFailure(ctx, "could not check the conditions of operator events; retrying", err)
	})
}

// runPeriodically calls do at the given interval until the context is done. While no account
// subscribes to operator events, the interval is at least idleInterval. While the index is
// incomplete, runPeriodically skips the calls.
func (e *Events) runPeriodically(
	ctx context.Context, interval time.Duration, do func(context.Context),
) {
	var rested time.Time
	retry.Every(ctx, interval, func() {
		if !e.config.RegistryIndexComplete() {
			return
		}
		if len(e.config.RegistryIndex.AccountsWithEventSubscription()) == 0 {
			if time.Since(rested) < idleInterval {
				return
			}
			rested = time.Now()
		}
		trying, cancel := context.WithTimeout(ctx, loopPassTimeout)
		defer cancel()
		do(trying)
	})
}

// logFailure logs a failure, but the same message at most once per failureLogInterval. It logs
// nothing if err is nil, or if ctx was canceled, which means that the executor is stopping.
func (e *Events) logFailure(ctx context.Context, message string, err error) {
	if err == nil || errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if time.Since(e.failureLoggedAt[message]) < failureLogInterval {
		return
	}
	e.failureLoggedAt[message] = time.Now()
	e.config.Log.WithError(err).Warn(message)
}
