package edit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hookstart/hookstart/shared/registry"
)

// MinSilenceThreshold and MaxSilenceThreshold are the bounds of an account's silence threshold: how
// long a trigger node may receive no requests before it counts as silent. The minimum exists
// because executors check for silence only every few seconds.
const (
	MinSilenceThreshold = 10 * time.Second
	MaxSilenceThreshold = 366 * 24 * time.Hour
)

// PutEventSubscription makes an account's events start a workflow. created reports whether the
// account had no event subscription before.
func (e *Editor) PutEventSubscription(
	ctx context.Context, accountID string, events registry.EventSubscription,
) (a *registry.Account, created bool, err error) {
	given := events.Kinds
	events.Kinds = slices.Compact(slices.Sorted(slices.Values(given)))
	a, err = e.changeEventSubscription(ctx, accountID,
		func(have *registry.EventSubscription) (*registry.EventSubscription, error) {
			created = have == nil
			if err := e.checkEventSubscription(accountID, events, given); err != nil {
				return nil, err
			}
			wanted := registry.EventSubscription{SubscribedAt: e.now()}
			if have != nil {
				wanted = *have
			}
			wanted.WorkflowID, wanted.Kinds, wanted.SilentAfter = events.WorkflowID, events.Kinds,
				events.SilentAfter
			return &wanted, nil
		})
	return a, created, err
}

// RemoveEventSubscription stops an account's events from starting a workflow. It fails with
// ErrNotFound if the account has no event subscription.
func (e *Editor) RemoveEventSubscription(ctx context.Context, accountID string) error {
	_, err := e.changeEventSubscription(ctx, accountID,
		func(have *registry.EventSubscription) (*registry.EventSubscription, error) {
			if have == nil {
				return nil, &NotFoundError{fmt.Sprintf("operator events of account %q", accountID)}
			}
			return nil, nil //nolint:nilnil // there are none from now on
		})
	return err
}

// changeEventSubscription replaces an account's event subscription with the result of
// newSubscription. newSubscription receives the existing subscription, or nil if there is none, and
// returns nil to remove it. newSubscription may be called more than once.
func (e *Editor) changeEventSubscription(
	ctx context.Context, accountID string,
	newSubscription func(have *registry.EventSubscription) (*registry.EventSubscription, error),
) (a *registry.Account, err error) {
	err = e.storeAndConfirm(ctx, func(ctx context.Context) (uint64, error) {
		have, ok := e.index.Account(accountID)
		if !ok {
			return 0, accountNotFound(accountID)
		}
		own := *have.Record
		a = &own
		if a.Events, err = newSubscription(have.Record.Events); err != nil {
			return 0, err
		}
		if registry.Equal(a, have.Record) {
			return have.Revision, errUnchanged
		}
		if err := checkAccountCondition(ctx, have.Record); err != nil {
			return 0, err
		}
		return e.put(ctx, e.registry, registry.AccountPrefix+accountID, a, have.Revision)
	})
	return a, err
}

// checkEventSubscription validates an account's event subscription. kinds holds the event kinds in
// the order of the operator's request, because error messages contain their indexes.
func (e *Editor) checkEventSubscription(
	accountID string, events registry.EventSubscription, kinds []string,
) (err error) {
	if w, ok := e.index.Workflow(events.WorkflowID); !ok || w.Record.AccountID != accountID {
		err = errors.Join(err, &InvalidFieldError{
			"workflowId",
			fmt.Sprintf("account %q has no workflow %q: it must be one of the account's own",
				accountID, events.WorkflowID),
		})
	}
	known := registry.EventKinds()
	for i, kind := range kinds {
		if !slices.Contains(known, kind) {
			err = errors.Join(err, &InvalidFieldError{
				fmt.Sprintf("kinds[%d]", i),
				fmt.Sprintf("there is no kind %q: %s", kind, strings.Join(known, ", ")),
			})
		}
	}
	if s := events.SilentAfter; s != 0 && (s < MinSilenceThreshold || s > MaxSilenceThreshold) {
		err = errors.Join(err, &InvalidFieldError{
			"silentAfterSeconds",
			fmt.Sprintf("must be from %d to %d, or absent", MinSilenceThreshold/time.Second,
				MaxSilenceThreshold/time.Second),
		})
	}
	return err
}
