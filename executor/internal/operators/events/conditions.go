package events

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/internal/operators/queues"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/stream"
)

const (
	// unattendedAfter is how long executions must wait in a queue without a runner before the queue
	// counts as unattended.
	unattendedAfter = 15 * time.Second
	// senderRecoveryPeriod is the minimum time from a sender's last refused request until the
	// sender counts as recovered. The sender must also have sent a verified request since then.
	senderRecoveryPeriod = 5 * time.Minute
	// Storage space counts as low once storageLowFraction of it is used. It counts as sufficient
	// again once less than storageRecoveredFraction is used.
	storageLowFraction, storageRecoveredFraction = 0.85, 0.80
	// streamInfoTimeout limits the time for looking up how full a stream is.
	streamInfoTimeout = 2 * time.Second
	// maxWorkflowsPerAccount is the maximum number of workflows examined per account.
	maxWorkflowsPerAccount = 100_000
)

// conditionHealth says whether the subject of an event, such as a queue or a sender, is in a good
// or a bad state.
type conditionHealth int

const (
	healthUnknown conditionHealth = iota // not determined; an ongoing condition continues
	healthGood
	healthBad
)

// conditionState is the observed state of one subject, with the texts of the events that report a
// change of this state.
type conditionState struct {
	health     conditionHealth
	workflowID string
	queue      string
	badText    string // the event's text if the health becomes bad
	goodText   string // the event's text if the health becomes good
}

// statesByKind maps each kind of event to an account's observed states, keyed by subject. Kinds
// that were not examined have no entry.
type statesByKind map[string]map[string]conditionState

// updateConditions compares the current states of all subjects with the stored conditions. In one
// transaction, it stores which conditions have begun or ended, and the causes of the events that
// will report these changes.
func (e *Events) updateConditions(ctx context.Context, now time.Time) error {
	accounts := e.config.RegistryIndex.AccountsWithEventSubscription()
	open, err := e.config.Store.OngoingConditions(ctx)
	if err != nil || len(accounts)+len(open) == 0 {
		return err
	}
	byAccount := map[string][]store.OngoingCondition{}
	for _, c := range open {
		byAccount[c.AccountID] = append(byAccount[c.AccountID], c)
	}
	seen, err := e.observeAcrossAccounts(ctx, accounts)
	if err != nil {
		return err
	}
	var changes []store.OngoingConditionChange
	for _, a := range accounts {
		found, err := e.currentConditionStates(ctx, now, a, seen, byAccount[a.ID])
		if err != nil {
			return err
		}
		changes = append(changes, conditionChanges(now, a, found, byAccount[a.ID])...)
		delete(byAccount, a.ID)
	}
	for _, left := range byAccount { // conditions of accounts that have no operator events
		for _, c := range left {
			changes = append(changes,
				store.OngoingConditionChange{OngoingCondition: c, Ended: true})
		}
	}
	return e.config.Store.ChangeOngoingConditions(ctx, changes)
}

// crossAccountObservations holds the observations that updateConditions makes once for all
// accounts.
type crossAccountObservations struct {
	queues         []queues.Queue
	refusedSenders map[string]store.SenderActivity // the senders with refused requests, by subject
	// storageByQueue maps each queue that has its own stream to the storage state of that stream.
	// The key "" stands for the shared stream.
	storageByQueue map[string]conditionState
}

// observeAcrossAccounts makes the observations that all accounts share. It skips an observation if
// no account has selected a kind of event that depends on it.
func (e *Events) observeAcrossAccounts(
	ctx context.Context,
	accounts []*registry.Account,
) (s crossAccountObservations, err error) {
	wanted := func(kind string) bool {
		for _, a := range accounts {
			if wantsKindOrRecovery(a.Events, kind) {
				return true
			}
		}
		return false
	}
	if wanted(registry.EventQueueUnattended) {
		if s.queues, err = e.config.Queues.Poll(ctx); err != nil {
			return s, err
		}
	}
	if wanted(registry.EventSenderRefused) {
		all, err := e.config.Store.RefusedSenders(ctx)
		if err != nil {
			return s, err
		}
		s.refusedSenders = map[string]store.SenderActivity{}
		for _, observed := range all {
			subject := conditionSubjectOfTrigger(observed.WorkflowID, observed.NodeID)
			s.refusedSenders[subject] = observed
		}
	}
	if wanted(registry.EventStorageLow) {
		s.storageByQueue, err = e.storageStates(ctx)
	}
	return s, err
}

// wantsKindOrRecovery reports whether an account has selected events of a kind, or the events that
// report the recovery.
func wantsKindOrRecovery(setting *registry.EventSubscription, kind string) bool {
	return setting.Wants(kind) || setting.Wants(kind+registry.EventRecoveredSuffix)
}

// conditionSubjectOfTrigger returns the subject of the events about a trigger node.
func conditionSubjectOfTrigger(workflowID, nodeID string) string {
	return workflowID + "/" + nodeID
}

// currentConditionStates returns the states of all subjects whose events an account has selected.
// It leaves out the workflow that the events start, because events must not report problems of that
// workflow.
func (e *Events) currentConditionStates(
	ctx context.Context,
	now time.Time,
	a *registry.Account,
	seen crossAccountObservations,
	open []store.OngoingCondition,
) (statesByKind, error) {
	found := statesByKind{}
	var workflows []*registry.Workflow
	for _, w := range e.config.RegistryIndex.Workflows(a.ID, "", maxWorkflowsPerAccount) {
		if w.ID != a.Events.WorkflowID {
			workflows = append(workflows, w)
		}
	}
	if wantsKindOrRecovery(a.Events, registry.EventQueueUnattended) {
		found[registry.EventQueueUnattended] = queueStates(now, workflows, seen.queues)
	}
	if wantsKindOrRecovery(a.Events, registry.EventSenderRefused) {
		found[registry.EventSenderRefused] = senderStates(now, a.Events, workflows,
			seen.refusedSenders)
	}
	if wantsKindOrRecovery(a.Events, registry.EventStorageLow) {
		found[registry.EventStorageLow] = storageStatesForWorkflows(workflows, seen.storageByQueue)
	}
	if wantsKindOrRecovery(a.Events, registry.EventSenderSilent) {
		silent, err := e.silenceStates(ctx, now, a.Events, workflows, open)
		if err != nil {
			return nil, err
		}
		found[registry.EventSenderSilent] = silent
	}
	return found, nil
}

// queueStates returns the states of the queues that the workflows use, keyed by queue.
func queueStates(
	now time.Time, workflows []*registry.Workflow, all []queues.Queue,
) map[string]conditionState {
	named := map[string]bool{}
	for _, w := range workflows {
		named[w.Queue] = true
	}
	found := map[string]conditionState{}
	for _, q := range all {
		if !named[q.Name] {
			continue
		}
		state := conditionState{
			queue:    q.Name,
			badText:  fmt.Sprintf("No runner takes the executions that wait in queue %s.", q.Name),
			goodText: fmt.Sprintf("Queue %s is attended again.", q.Name),
		}
		switch waits := q.UnattendedDuration(now); {
		case q.Incomplete, q.MembersUnknown() && q.Waiting > 0:
			state.health = healthUnknown
		case waits >= unattendedAfter:
			state.health = healthBad
		case !q.PausedSince.IsZero():
			state.health, state.goodText = healthGood,
				fmt.Sprintf("Queue %s is paused: its executions wait for an operator.", q.Name)
		case waits == 0:
			state.health = healthGood
		}
		found[q.Name] = state
	}
	return found
}

// senderStates returns the states of the workflows' senders, keyed by subject. A refused request
// makes a sender's health bad. A verified request makes it good again, once no request has been
// refused for senderRecoveryPeriod. Refusals from before the account selected its events do not
// count.
func senderStates(
	now time.Time, setting *registry.EventSubscription, workflows []*registry.Workflow,
	all map[string]store.SenderActivity,
) map[string]conditionState {
	found := map[string]conditionState{}
	for _, w := range workflows {
		for _, node := range w.Triggers {
			subject := conditionSubjectOfTrigger(w.ID, node.NodeID)
			s, ok := all[subject]
			if node.Sender == nil || !ok {
				continue
			}
			state := conditionState{
				workflowID: w.ID,
				badText: fmt.Sprintf("Requests to node %s of workflow %s are refused, the "+
					"last one at %s: %s.", node.NodeID, w.ID, formatTime(s.RefusedAt),
					truncateErrorText(s.RefusedReason)),
				goodText: fmt.Sprintf("Requests to node %s of workflow %s are verified again, "+
					"since %s.", node.NodeID, w.ID, formatTime(s.VerifiedAt)),
			}
			switch {
			case s.RefusedAt.Before(setting.SubscribedAt):
				state.health = healthGood
			case !s.VerifiedAt.After(s.RefusedAt) || now.Sub(s.RefusedAt) < senderRecoveryPeriod:
				state.health = healthBad
			default:
				state.health = healthGood
			}
			found[subject] = state
		}
	}
	return found
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// storageStatesForWorkflows returns the states of the streams that the workflows use: the shared
// stream, and the own streams of the workflows' queues. all holds the states of all streams, keyed
// by queue as in crossAccountObservations.
func storageStatesForWorkflows(
	workflows []*registry.Workflow,
	all map[string]conditionState,
) map[string]conditionState {
	found := map[string]conditionState{"": all[""]}
	for _, w := range workflows {
		if state, ok := all[w.Queue]; ok {
			found[w.Queue] = state
		}
	}
	return found
}

// storageStates returns the storage states of the streams, keyed by queue as in
// crossAccountObservations. The health of a stream that does not respond is unknown.
func (e *Events) storageStates(ctx context.Context) (map[string]conditionState, error) {
	names, _, err := stream.StreamNames(ctx, e.config.JetStream)
	if err != nil {
		return nil, err
	}
	account, err := e.config.JetStream.AccountInfo(ctx)
	if err != nil {
		return nil, fmt.Errorf("the account of NATS: %w", err)
	}
	all := map[string]conditionState{}
	var unanswered error
	var mu sync.Mutex
	var asking sync.WaitGroup
	for _, name := range names {
		asking.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, streamInfoTimeout)
			defer cancel()
			executions, err := e.config.JetStream.Stream(ctx, name)
			if errors.Is(err, jetstream.ErrStreamNotFound) {
				return // it was deleted after the names were listed
			}
			mu.Lock()
			defer mu.Unlock()
			queue, _ := stream.QueueOfOwnStream(name)
			if err != nil {
				all[queue] = conditionState{health: healthUnknown, queue: queue}
				unanswered = errors.Join(unanswered, fmt.Errorf("stream %s: %w", name, err))
				return
			}
			all[queue] = streamStorageState(executions.CachedInfo(), account)
		})
	}
	asking.Wait()
	e.logFailure(ctx, "could not look up how full a stream is; retrying", unanswered)
	return all, nil
}

// streamStorageState returns the storage state of a stream of start messages. For the shared
// stream, if the storage of the whole NATS account is fuller than the stream, it returns the state
// of that storage.
func streamStorageState(
	info *jetstream.StreamInfo, account *jetstream.AccountInfo,
) (state conditionState) {
	queue, own := stream.QueueOfOwnStream(info.Config.Name)
	part := usedFraction(info.State.Bytes, info.Config.MaxBytes)
	switch other := fullestTierFraction(account); {
	case own:
		state = storageState(part, "The stream of queue "+queue,
			"When it is full, requests for the queue are answered 503.")
	case other > part:
		state = storageState(other, "The storage of NATS",
			"When it is full, requests are answered 503.")
	default:
		state = storageState(part, "The stream of executions",
			"From 90 % on, requests of the accounts that hold the most in it are answered 503; "+
				"when it is full, all are.")
	}
	state.queue = queue
	return state
}

// fullestTierFraction returns the used fraction, from 0 to 1, of the fullest storage tier of the
// NATS account.
func fullestTierFraction(account *jetstream.AccountInfo) float64 {
	part := usedFraction(account.Store, account.Limits.MaxStore)
	for _, tier := range account.Tiers {
		part = max(part, usedFraction(tier.Store, tier.Limits.MaxStore))
	}
	return part
}

// usedFraction returns bytes as a fraction of limit. A limit of zero or less means no limit; the
// fraction is then 0.
func usedFraction(bytes uint64, limit int64) float64 {
	if limit <= 0 {
		return 0
	}
	return float64(bytes) / float64(limit)
}

// storageState returns the state of one stream's storage. usedFraction is from 0 to 1. storageName
// names the storage in the event's text, and consequence says what happens when it is full. Between
// storageRecoveredFraction and storageLowFraction, the health is unknown, so that an ongoing
// condition continues.
func storageState(usedFraction float64, storageName, consequence string) conditionState {
	percent := 100 * usedFraction
	state := conditionState{
		badText:  fmt.Sprintf("%s is %.0f %% full. %s", storageName, percent, consequence),
		goodText: fmt.Sprintf("%s has room again: it is %.0f %% full.", storageName, percent),
	}
	switch {
	case usedFraction >= storageLowFraction:
		state.health = healthBad
	case usedFraction < storageRecoveredFraction:
		state.health = healthGood
	}
	return state
}

// conditionChanges returns which of an account's conditions have begun or ended. open holds the
// stored conditions that are ongoing. A condition ends without an event if its subject no longer
// exists, or if the account no longer selects its kind.
func conditionChanges(
	now time.Time, a *registry.Account, current statesByKind, open []store.OngoingCondition,
) (changes []store.OngoingConditionChange) {
	now = store.StoredTime(now)
	cause := func(kind, subject, text string, state conditionState) *store.EventCause {
		if !a.Events.Wants(kind) {
			return nil
		}
		return &store.EventCause{
			ID:         fmt.Sprintf("%s:%s:%s:%d", kind, a.ID, subject, now.UnixMicro()),
			AccountID:  a.ID,
			Kind:       kind,
			WorkflowID: state.workflowID,
			Queue:      state.queue,
			At:         now,
			Text:       text,
		}
	}
	began := map[[2]string]bool{}
	for _, c := range open {
		began[[2]string{c.Kind, c.Subject}] = true
		state, ok := current[c.Kind][c.Subject]
		switch {
		case !ok:
			changes = append(changes,
				store.OngoingConditionChange{OngoingCondition: c, Ended: true})
		case state.health == healthGood:
			changes = append(changes, store.OngoingConditionChange{
				OngoingCondition: c,
				Ended:            true,
				Cause: cause(c.Kind+registry.EventRecoveredSuffix, c.Subject,
					state.goodText, state),
			})
		}
	}
	for kind, subjects := range current {
		for subject, state := range subjects {
			if state.health == healthBad && !began[[2]string{kind, subject}] {
				changes = append(changes, store.OngoingConditionChange{
					OngoingCondition: store.OngoingCondition{
						AccountID: a.ID,
						Kind:      kind,
						Subject:   subject,
						Since:     now,
					},
					Cause: cause(kind, subject, state.badText, state),
				})
			}
		}
	}
	return changes
}
