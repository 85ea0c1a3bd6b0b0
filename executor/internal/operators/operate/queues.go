package operate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/queues"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/stream"
)

const queuesCursorKind = "queues"

// Queues lists the queues that workflows use or whose settings have an effect, sorted by name. If
// accountID is not empty, it lists only the queues of that account's workflows. If other accounts
// use a queue as well, only callers with access to all accounts see how many executions wait in the
// queue and which execution blocks others.
func (s *Service) Queues(
	ctx context.Context, caller Caller, accountID string, page PageOptions,
) (api.List[api.Queue], error) {
	return runRead(ctx, s, caller, newAccessRule("Queues", narrowToCallerAccount(&accountID)),
		func(ctx context.Context) (none api.List[api.Queue], err error) {
			after, err := page.cursorPosition(queuesCursorKind)
			if err != nil {
				return none, err
			}
			all, err := s.config.Queues.Poll(ctx)
			if err != nil {
				return none, err
			}
			found := s.queuesOf(accountID, all)
			rest := slices.DeleteFunc(slices.Clone(found), func(q queues.Queue) bool {
				return q.Name <= after
			})
			shared := s.queuesUsedByOthers(caller)
			rest = rest[:min(len(rest), page.Limit+1)]
			if rest, err = s.withHandlerStartTimes(ctx, rest); err != nil {
				return none, err
			}
			return newListPage(queuesCursorKind, rest, page, func(q queues.Queue) api.Queue {
				return s.apiQueue(q, shared[q.Name])
			}, func(q queues.Queue) string { return q.Name }), nil
		})
}

// withHandlerStartTimes returns a copy of the given queues. In the copy, AcceptedAt of each
// execution in Group.Blocking is the time at which the execution's handler began. AcceptedAt stays
// unchanged if that time is not recorded.
func (s *Service) withHandlerStartTimes(
	ctx context.Context, all []queues.Queue,
) ([]queues.Queue, error) {
	var ids []string
	for _, q := range all {
		for _, g := range q.Groups {
			for _, h := range g.Blocking {
				ids = append(ids, h.ExecutionID)
			}
		}
	}
	if len(ids) == 0 {
		return all, nil
	}
	records, err := s.config.Store.GetMany(ctx, ids)
	if err != nil {
		return nil, err
	}
	began := map[string]time.Time{}
	for _, r := range records {
		began[r.ID] = r.StartedAt
	}
	all = slices.Clone(all)
	for i := range all {
		all[i].Groups = slices.Clone(all[i].Groups)
		for j := range all[i].Groups {
			g := &all[i].Groups[j]
			g.Blocking = slices.Clone(g.Blocking)
			for k := range g.Blocking {
				if at := began[g.Blocking[k].ExecutionID]; !at.IsZero() {
					g.Blocking[k].AcceptedAt = at
				}
			}
		}
	}
	return all, nil
}

// queuesOf filters a list of queues: it keeps those that an account's workflows use. If accountID
// is empty, it returns the whole list.
func (s *Service) queuesOf(accountID string, all []queues.Queue) []queues.Queue {
	if accountID == "" {
		return all
	}
	named := map[string]bool{}
	for w := range s.workflows(accountID, "") {
		named[w.Queue] = true
	}
	return slices.DeleteFunc(slices.Clone(all), func(q queues.Queue) bool { return !named[q.Name] })
}

// UnattendedQueues returns, keyed by name, the queues that had no runner at the last poll, which
// was a few seconds ago. It makes no remote call.
func (s *Service) UnattendedQueues(
	ctx context.Context, caller Caller,
) (map[string]api.Queue, error) {
	return runRead(ctx, s, caller, newAccessRule("UnattendedQueues", accessUnrestricted),
		func(context.Context) (map[string]api.Queue, error) {
			idle := map[string]api.Queue{}
			last, _ := s.config.Queues.LastPoll()
			shared := s.queuesUsedByOthers(caller)
			for _, q := range s.queuesOf(caller.AccountID, last) {
				if q.Members() == 0 && !q.Incomplete && !q.MembersUnknown() {
					idle[q.Name] = s.apiQueue(q, shared[q.Name])
				}
			}
			return idle, nil
		})
}

// queuesUsedByOthers returns the set of the names of queues that are used by workflows to which the
// caller has no access. It is nil if the caller has access to all accounts.
func (s *Service) queuesUsedByOthers(caller Caller) map[string]bool {
	if caller.AccountID == "" {
		return nil
	}
	shared := map[string]bool{}
	for w := range s.workflows("", "") {
		if !caller.canAccessAccount(w.AccountID) {
			shared[w.Queue] = true
		}
	}
	return shared
}

// apiQueue converts a queue to the API's form. shared means that workflows to which the caller has
// no access use the queue as well. In this case, apiQueue omits how many executions wait, since
// when, and which ones block others.
func (s *Service) apiQueue(q queues.Queue, shared bool) api.Queue {
	if shared {
		q.Waiting, q.OldestAcceptedAt, q.Groups = 0, time.Time{}, slices.Clone(q.Groups)
		for i := range q.Groups {
			q.Groups[i].Waiting, q.Groups[i].Blocking = 0, nil
		}
	}
	result := api.Queue{
		Queue:            q.Name,
		Waiting:          q.Waiting,
		Shared:           shared,
		OldestAcceptedAt: q.OldestAcceptedAt.UTC(),
		Incomplete:       q.Incomplete,
		Groups:           make([]api.QueueGroup, len(q.Groups)),
	}
	result.Stream = stream.ExecutionsName
	if result.OwnStream = s.apiQueueStream(q.Name); result.OwnStream != nil &&
		s.config.RegistryIndex.StoreTargetOf(q.Name) == registry.StoreTargetOwn {
		result.Stream = stream.OwnStreamName(q.Name)
	}
	if !q.PausedSince.IsZero() {
		result.Paused = &api.QueuePause{Since: q.PausedSince, Until: q.PausedUntil}
	}
	for i, g := range q.Groups {
		result.Groups[i] = apiQueueGroup(g)
	}
	return result
}

func apiQueueGroup(g queues.Group) api.QueueGroup {
	result := api.QueueGroup{
		Group:          g.Name,
		Members:        g.Members,
		MembersUnknown: g.MembersUnknown,
		Waiting:        g.Waiting,
		LastSeenAt:     g.LastSeen.UTC(),
	}
	if g.MaxInFlight > 0 {
		result.MaxInFlight = &g.MaxInFlight
	}
	for _, h := range g.Blocking {
		result.Held = append(result.Held, api.HeldKey{
			OrderKey:    h.OrderKey,
			WorkflowID:  h.WorkflowID,
			ExecutionID: h.ExecutionID,
			Since:       h.AcceptedAt.UTC(),
			Waiting:     h.Waiting,
		})
	}
	return result
}

// accessToQueue returns the check for calls about a queue. A caller with access to a single account
// may change a queue that only this account's workflows use.
func accessToQueue(name string) accessCheck {
	return func(ctx context.Context, s *Service, caller Caller) error {
		if err := s.config.Editor.EnsureCurrent(ctx); err != nil {
			return err
		}
		named := false
		for w := range s.workflows(caller.AccountID, "") {
			named = named || w.Queue == name
		}
		if !named {
			return notFoundError("queue", name, "")
		}
		if s.queuesUsedByOthers(caller)[name] {
			return &Error{
				Code:   api.CodeForbidden,
				Detail: fmt.Sprintf("Workflows of other accounts use the queue %q, too.", name),
			}
		}
		return nil
	}
}

// PauseQueue stops the delivery of new executions to all groups of a queue until the given time. If
// until is zero, the pause lasts until ResumeQueue is called. When PauseQueue returns without an
// error, the queue is paused: it still accepts executions, but they wait.
func (s *Service) PauseQueue(
	ctx context.Context, caller Caller, name string, until time.Time,
) (api.Queue, error) {
	return s.changeQueue(ctx, caller, "PauseQueue", name,
		func(ctx context.Context) (*registry.Queue, error) {
			return s.config.Editor.PauseQueue(ctx, name, until)
		})
}

// ResumeQueue ends the pause of a queue, so that its executions are delivered to runners again.
func (s *Service) ResumeQueue(ctx context.Context, caller Caller, name string) (api.Queue, error) {
	return s.changeQueue(ctx, caller, "ResumeQueue", name,
		func(ctx context.Context) (*registry.Queue, error) {
			return s.config.Editor.ResumeQueue(ctx, name)
		})
}

// SetQueueGroup sets how many executions the members of a group may have in flight together. A nil
// maxInFlight means no limit. The group need not exist yet.
func (s *Service) SetQueueGroup(
	ctx context.Context, caller Caller, name, group string, maxInFlight *int64,
) (none api.QueueGroup, err error) {
	var limit int64
	if maxInFlight != nil {
		limit = *maxInFlight
	}
	q, err := s.changeQueue(ctx, caller, "SetQueueGroup", name,
		func(ctx context.Context) (*registry.Queue, error) {
			return s.config.Editor.SetQueueGroupLimit(ctx, name, group, limit)
		})
	if err != nil {
		return none, err
	}
	for _, g := range q.Groups {
		if g.Group == group {
			return g, nil
		}
	}
	return api.QueueGroup{Group: group, MaxInFlight: maxInFlight}, nil
}

// WithQueueGroupCondition returns a context for a conditional change to a queue. The change calls
// check with the current limit of the group, or with nil if it has none. If check returns an error,
// the change fails with that error. check may be called more than once.
func WithQueueGroupCondition(
	ctx context.Context, group string, check func(maxInFlight *int64) error,
) context.Context {
	return edit.WithQueueCondition(ctx, func(q *registry.Queue) error {
		for _, g := range q.Groups {
			if g.Group == group && g.MaxInFlight > 0 {
				return check(&g.MaxInFlight)
			}
		}
		return check(nil)
	})
}

// WithQueueStreamCondition is like WithQueueGroupCondition, but check is called with the settings
// of the queue's own stream. It is called with nil if the queue has none, or if the queue has moved
// back to the shared stream and its own stream is only being drained.
func WithQueueStreamCondition(
	ctx context.Context, check func(*api.PutQueueStream) error,
) context.Context {
	return edit.WithQueueCondition(ctx, func(q *registry.Queue) error {
		if q.Stream == nil || q.Stream.Phase == registry.QueuePhaseDrainingOwnStream {
			return check(nil)
		}
		return check(&api.PutQueueStream{
			MaxBytes: q.Stream.MaxBytes, MaxAgeSeconds: int64(q.Stream.MaxAge / time.Second),
			Replicas: q.Stream.Replicas, PlacementTags: q.Stream.PlacementTags,
		})
	})
}

// changeQueue changes the settings of a queue: it calls apply, which changes the registry record,
// and then updates the consumers of the queue's groups to match. If this executor crashes in
// between, the call fails, but another executor updates the consumers.
func (s *Service) changeQueue(
	ctx context.Context, caller Caller, operation, name string,
	apply func(context.Context) (*registry.Queue, error),
) (api.Queue, error) {
	return runChange(ctx, s, caller, newAccessRule(operation, accessToQueue(name)),
		s.config.ChangeTimeout,
		func(ctx context.Context) (none api.Queue, err error) {
			settings, err := apply(ctx)
			if err != nil {
				return none, err
			}
			if err := s.config.Queues.EnforceSettings(ctx, settings); err != nil {
				return none, err
			}
			all, err := s.config.Queues.Poll(ctx)
			if err != nil {
				return none, err
			}
			for _, q := range all {
				if q.Name == name {
					return s.apiQueue(q, s.queuesUsedByOthers(caller)[name]), nil
				}
			}
			return s.apiQueue(unusedQueue(settings), false), nil
		})
}

// unusedQueue returns the state of a queue that has settings, but that no workflow uses yet.
func unusedQueue(settings *registry.Queue) queues.Queue {
	q := queues.Queue{Name: settings.Name}
	if settings.IsPaused(time.Now()) {
		q.PausedSince, q.PausedUntil = settings.PausedSince, settings.PausedUntil
	}
	return q
}
