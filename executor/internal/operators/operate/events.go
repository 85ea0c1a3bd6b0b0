package operate

import (
	"context"
	"strings"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/edit"
)

// EventSubscription returns an account's operator event settings, and the ongoing conditions that
// events have reported.
func (s *Service) EventSubscription(
	ctx context.Context,
	caller Caller,
	accountID string,
) (api.Events, error) {
	return runRead(ctx, s, caller, newAccessRule("EventSubscription", accessToAccount(accountID)),
		func(ctx context.Context) (none api.Events, err error) {
			if err := s.config.Editor.EnsureCurrent(ctx); err != nil {
				return none, err
			}
			have, ok := s.config.RegistryIndex.Account(accountID)
			if !ok {
				return none, notFoundError("account", accountID, "")
			}
			if have.Record.Events == nil {
				return none, &Error{
					Code:   api.CodeNotFound,
					Detail: "The events of account " + accountID + " start no workflow.",
				}
			}
			return s.eventSubscriptionOf(ctx, have.Record)
		})
}

// PutEventSubscription sets the workflow that an account's operator events start, and the kinds of
// events that start it. The result reports whether the subscription is new.
func (s *Service) PutEventSubscription(
	ctx context.Context, caller Caller, accountID string, put api.PutEvents,
) (PutResult[api.Events], error) {
	return runChange(
		ctx,
		s,
		caller,
		newAccessRule("PutEventSubscription", accessToAccount(accountID)),
		s.config.ChangeTimeout,
		func(ctx context.Context) (none PutResult[api.Events], err error) {
			account, created, err := s.config.Editor.PutEventSubscription(ctx, accountID,
				registry.EventSubscription{
					WorkflowID:  put.WorkflowID,
					Kinds:       put.Kinds,
					SilentAfter: secondsToDuration(put.SilentAfterSeconds),
				})
			if err != nil {
				return none, err
			}
			events, err := s.eventSubscriptionOf(ctx, account)
			return PutResult[api.Events]{events, created}, err
		},
	)
}

// WithEventSubscriptionCondition returns a context for a conditional change to an account's
// operator event settings. The change calls check with the current settings, or with nil if the
// account has none. If check returns an error, the change fails with that error. check may be
// called more than once.
func WithEventSubscriptionCondition(
	ctx context.Context,
	check func(*api.PutEvents) error,
) context.Context {
	return edit.WithAccountCondition(ctx, func(a *registry.Account) error {
		if a == nil {
			return check(nil)
		}
		return check(apiEventSubscription(a.Events))
	})
}

// secondsToDuration converts a number of seconds to a duration. A number that is out of range
// becomes -1, which no setting accepts.
func secondsToDuration(n int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Second)
	if n > most || n < -most {
		return -1
	}
	return time.Duration(n) * time.Second
}

// RemoveEventSubscription removes an account's operator event settings, so that its events no
// longer start a workflow.
func (s *Service) RemoveEventSubscription(
	ctx context.Context,
	caller Caller,
	accountID string,
) error {
	return s.runChangeWithoutResult(
		ctx,
		caller,
		newAccessRule(
			"RemoveEventSubscription",
			accessToAccount(accountID),
		),
		s.config.ChangeTimeout,
		func(ctx context.Context) error {
			return s.config.Editor.RemoveEventSubscription(ctx, accountID)
		},
	)
}

func (s *Service) eventSubscriptionOf(
	ctx context.Context,
	a *registry.Account,
) (api.Events, error) {
	events := api.Events{
		PutEvents:  *apiEventSubscription(a.Events),
		Since:      a.Events.SubscribedAt,
		Conditions: []api.EventCondition{},
	}
	open, err := s.config.Store.OngoingConditions(ctx)
	if err != nil {
		return api.Events{}, err
	}
	for _, c := range open {
		if c.AccountID == a.ID && a.Events.Wants(c.Kind) {
			events.Conditions = append(events.Conditions, apiCondition(c))
		}
	}
	return events, nil
}

func apiCondition(c store.OngoingCondition) api.EventCondition {
	condition := api.EventCondition{Kind: c.Kind, Since: c.Since}
	switch c.Kind {
	case registry.EventQueueUnattended:
		condition.Queue = c.Subject
	case registry.EventSenderRefused, registry.EventSenderSilent:
		condition.WorkflowID, condition.NodeID, _ = strings.Cut(c.Subject, "/")
	}
	return condition
}

// EventKinds returns all kinds of operator events, sorted.
func EventKinds() []string { return registry.EventKinds() }

// apiEventSubscription converts a subscription to operator events to the API's form. nil becomes
// nil.
func apiEventSubscription(e *registry.EventSubscription) *api.PutEvents {
	if e == nil {
		return nil
	}
	return &api.PutEvents{
		WorkflowID:         e.WorkflowID,
		Kinds:              e.Kinds,
		SilentAfterSeconds: int64(e.SilentAfter / time.Second),
	}
}
