package edit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/retry"
)

// Activate lets a workflow's webhooks start executions. It fails with ErrWebhooksNotInPlan or
// ErrActiveWorkflowLimit if the plan does not allow that, even if the workflow is already active
// but exceeds its plan's limit.
func (e *Editor) Activate(ctx context.Context, id string) (*registry.Workflow, error) {
	return e.setActive(ctx, id, true)
}

// Deactivate stops a workflow's webhooks from starting executions. The plan may then allow another
// active workflow of the account, which had exceeded the plan's limit.
func (e *Editor) Deactivate(ctx context.Context, id string) (*registry.Workflow, error) {
	return e.setActive(ctx, id, false)
}

// setActive writes twice: first it stores the intent in the account's record, which serves as the
// lock, and then it updates the workflow's record. If two calls run concurrently, one fails to
// update the account and starts again. A call first carries out an earlier intent that has not been
// carried out. A call that fails after it may have stored an intent still tries to carry the intent
// out.
func (e *Editor) setActive(
	ctx context.Context, id string, active bool,
) (w *registry.Workflow, err error) {
	var unfinished string // the ID of an account that may have an intent not carried out
	err = e.storeAndConfirm(ctx, func(ctx context.Context) (uint64, error) {
		have, ok := e.directory.Workflow(id)
		if !ok {
			return 0, workflowNotFound(id)
		}
		account, ok := e.directory.Account(have.Record.AccountID)
		if !ok {
			return 0, &NotFoundError{
				fmt.Sprintf("account %q of workflow %q", have.Record.AccountID, id),
			}
		}
		last := account.Record.LastTransition
		if behind, undone := e.unfinishedTransition(account.Record); undone {
			unfinished = account.Record.ID
			if _, err := e.writeTransition(ctx, behind, last); err != nil {
				return 0, err
			}
			return 0, errRetry // the earlier transition is now carried out: start again
		}
		if have.Record.Active != active {
			if err := checkUpdatedAtCondition(ctx, have.Record); err != nil {
				return 0, err
			}
		}
		if active {
			if err := e.checkPlanAllowsActive(have.Record); err != nil {
				return 0, err
			}
		}
		if have.Record.Active == active {
			w = have.Record
			return max(have.Revision, account.Revision, e.directory.Plans().Revision), errUnchanged
		}
		next := *account.Record
		next.LastTransition = registry.ActivationTransition{
			Number: last.Number + 1, WorkflowID: id, Active: active, At: e.now(), By: ActorOf(ctx),
		}
		_, err := e.put(ctx, e.registry, registry.AccountPrefix+next.ID, &next, account.Revision)
		var unknown *OutcomeUnknownError
		if err == nil || errors.As(err, &unknown) {
			unfinished = next.ID
		}
		if err != nil {
			return 0, err
		}
		revision, err := e.writeTransition(ctx, have, next.LastTransition)
		if err != nil {
			return 0, err
		}
		unfinished = ""
		w = applyTransition(have.Record, next.LastTransition)
		return revision, nil
	})
	if err != nil && unfinished != "" {
		e.finishTransition(ctx, unfinished)
	}
	return w, err
}

// finishTransitionTimeout is the maximum time for carrying out an intent if the context of the
// change has ended.
const finishTransitionTimeout = 5 * time.Second

// finishTransition carries out the account's last transition, if that has not been carried out. It
// ignores the end of ctx. If it cannot finish in time, the next change does: see setActive.
func (e *Editor) finishTransition(ctx context.Context, accountID string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTransitionTimeout)
	defer cancel()
	for attempt := 0; ; attempt++ {
		if e.follower.CatchUp(ctx) == nil {
			account, ok := e.directory.Account(accountID)
			if !ok {
				return
			}
			w, undone := e.unfinishedTransition(account.Record)
			if !undone {
				return
			}
			_, err := e.writeTransition(ctx, w, account.Record.LastTransition)
			if err == nil {
				return
			}
		}
		if retry.SleepBackoff(ctx, attempt) != nil {
			return
		}
	}
}

// checkPlanAllowsActive returns an error if the plan does not allow a workflow to be active.
func (e *Editor) checkPlanAllowsActive(w *registry.Workflow) error {
	view, ok := e.directory.Lookup(w.ID)
	switch {
	case !ok:
		return errRetry // it has been deleted meanwhile
	case !view.PlanHasWebhooks():
		return ErrWebhooksNotInPlan
	case w.Active && !view.WithinPlan:
		return fmt.Errorf("%w (%d)", ErrActiveWorkflowLimit, view.Plan.MaxActive)
	case !w.Active && view.Plan.MaxActive != registry.Unlimited &&
		e.directory.OtherActiveCount(w.AccountID, w.ID) >= view.Plan.MaxActive:
		return fmt.Errorf("%w (%d)", ErrActiveWorkflowLimit, view.Plan.MaxActive)
	}
	return nil
}

// unfinishedTransition returns the workflow that the account's last transition concerns, if that
// transition has not been carried out in the workflow's record. Otherwise, it returns false.
func (e *Editor) unfinishedTransition(
	account *registry.Account,
) (Versioned[*registry.Workflow], bool) {
	last := account.LastTransition
	w, ok := e.directory.Workflow(last.WorkflowID)
	return w, ok && w.Record.AccountID == account.ID && w.Record.Transition < last.Number
}

// writeTransition writes a transition to the workflow's record. The audit entry names the actor who
// requested the transition.
func (e *Editor) writeTransition(
	ctx context.Context, w Versioned[*registry.Workflow], t registry.ActivationTransition,
) (uint64, error) {
	return e.put(WithActor(ctx, t.By), e.registry, registry.WorkflowPrefix+w.Record.ID,
		applyTransition(w.Record, t), w.Revision)
}

func applyTransition(
	before *registry.Workflow,
	t registry.ActivationTransition,
) *registry.Workflow {
	w := before.Clone()
	w.Active, w.Transition, w.UpdatedAt, w.ActivatedAt = t.Active, t.Number, t.At, time.Time{}
	if t.Active {
		w.ActivatedAt = t.At
	}
	return w
}
