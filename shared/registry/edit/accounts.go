package edit

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hookstart/hookstart/shared/registry"
)

// PutPlans stores the plan catalog and returns once it is in force at this process. Unlike the
// other methods, it does not wait for the other processes, because executors call it when they
// start, and waiting would delay their start.
func (e *Editor) PutPlans(ctx context.Context, catalog registry.Plans) error {
	revision, err := e.storeWithRetry(ctx, func(ctx context.Context) (uint64, error) {
		have := e.index.Plans()
		if have.Record != nil && slices.Equal(have.Record, catalog) {
			return have.Revision, errUnchanged
		}
		return e.put(ctx, e.registry, registry.PlansKey, catalog, have.Revision)
	})
	if err != nil {
		return err
	}
	return e.follower.AwaitApplied(ctx, revision)
}

// PutAccount creates or replaces an account. created reports whether the account is new. A change
// of plan is in force when PutAccount returns.
func (e *Editor) PutAccount(
	ctx context.Context, id, name, plan string,
) (a *registry.Account, created bool, err error) {
	return e.upsertAccount(ctx, id, func(*registry.Account) (string, string, error) {
		return name, plan, nil
	})
}

// ChangeAccount changes an existing account atomically. modify changes the name and the plan in
// place. If another call changes the account at the same time, modify is called again with the new
// values, so neither change is lost.
func (e *Editor) ChangeAccount(
	ctx context.Context, id string, modify func(name, plan *string) error,
) (*registry.Account, error) {
	a, _, err := e.upsertAccount(ctx, id,
		func(have *registry.Account) (name, plan string, err error) {
			if have == nil {
				return "", "", accountNotFound(id)
			}
			name, plan = have.Name, have.Plan
			return name, plan, modify(&name, &plan)
		})
	return a, err
}

func accountNotFound(id string) error { return &NotFoundError{fmt.Sprintf("account %q", id)} }

// upsertAccount creates or replaces an account. newValues receives the existing account, or nil if
// there is none, and returns the new name and plan. It may be called more than once.
func (e *Editor) upsertAccount(
	ctx context.Context, id string,
	newValues func(have *registry.Account) (name, plan string, err error),
) (a *registry.Account, created bool, err error) {
	err = e.storeAndConfirm(ctx, func(ctx context.Context) (uint64, error) {
		have, ok := e.index.Account(id)
		name, plan, err := newValues(have.Record)
		if err != nil {
			return 0, err
		}
		if err := errors.Join(checkID("id", id), checkDisplayName("name", name)); err != nil {
			return 0, err
		}
		if !e.planExists(plan) {
			return 0, &InvalidFieldError{"plan", fmt.Sprintf("there is no plan %q", plan)}
		}
		created = !ok
		if ok {
			own := *have.Record
			a = &own
		} else {
			a = &registry.Account{ID: id, CreatedAt: e.now()}
		}
		a.Name, a.Plan = name, plan
		if ok && registry.Equal(a, have.Record) {
			return have.Revision, errUnchanged
		}
		if err := checkAccountCondition(ctx, have.Record); err != nil {
			return 0, err
		}
		return e.put(ctx, e.registry, registry.AccountPrefix+id, a, have.Revision)
	})
	return a, created, err
}

// DeleteAccount deletes an account. It fails with ErrAccountNotEmpty if the account has workflows
// or keys. If a workflow is added to the account at the same time, one of the two calls fails.
func (e *Editor) DeleteAccount(ctx context.Context, id string) error {
	var deleted *registry.Account
	err := e.storeAndConfirm(ctx, func(ctx context.Context) (uint64, error) {
		have, ok := e.index.Account(id)
		switch {
		case !ok:
			return 0, accountNotFound(id)
		case e.index.isAccountInUse(id):
			return 0, fmt.Errorf("account %q: %w", id, ErrAccountNotEmpty)
		}
		if err := checkAccountCondition(ctx, have.Record); err != nil {
			return 0, err
		}
		deleted = have.Record
		return e.removeRecord(ctx, registry.AccountPrefix+id, have.Revision)
	})
	if err != nil || !e.index.isAccountInUse(id) {
		return err
	}
	// The account has a workflow or key after all, which another call stored at the same time. So
	// restore the account.
	return errors.Join(fmt.Errorf("account %q: %w", id, ErrAccountNotEmpty),
		e.storeAndConfirm(ctx, func(ctx context.Context) (uint64, error) {
			if have, ok := e.index.Account(id); ok {
				return have.Revision, errUnchanged
			}
			return e.put(ctx, e.registry, registry.AccountPrefix+id, deleted, 0)
		}))
}

// checkAccountOrUndoCreate returns an error if w's account was deleted while w was being stored. If
// created is true, w is a new workflow, and checkAccountOrUndoCreate then also deletes it.
func (e *Editor) checkAccountOrUndoCreate(
	ctx context.Context,
	w *registry.Workflow,
	created bool,
) error {
	if _, ok := e.index.Account(w.AccountID); ok {
		return nil
	}
	err := error(unknownAccountError(w.AccountID))
	if created {
		err = errors.Join(err, e.DeleteWorkflow(ctx, w.ID))
	}
	return err
}

func unknownAccountError(id string) *InvalidFieldError {
	return &InvalidFieldError{"accountId", fmt.Sprintf("there is no account %q; "+
		"create it first: hookstart account put %s", id, id)}
}

func (e *Editor) planExists(id string) bool {
	return e.index.Plans().Record.Find(id) != nil
}
