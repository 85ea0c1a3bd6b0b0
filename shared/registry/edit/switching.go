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
// ErrActiveWorkflowLimit if the plan does not allow that, even if the workflow is already active.
func (e *Editor) Activate(ctx context.Context, id string) (*registry.Workflow, error) {
	return e.setActive(ctx, id, true)
}

// Deactivate stops a workflow's webhooks from starting executions. If the account has more active
// workflows than its plan allows, and this workflow was one of those within the limit, then the
// first workflow beyond the limit can start executions again.
func (e *Editor) Deactivate(ctx context.Context, id string) (*registry.Workflow, error) {
	return e.setActive(ctx, id, false)
}

// setActive activates or deactivates a workflow in two writes. First it stores the intent, which is
// the requested transition, in the account's record. Then it carries the intent out: it updates the
// workflow's record. The account's record serves as a lock: of two concurrent calls, one fails to
// update it and starts again.
//
// If the account's record holds an earlier intent that has not been carried out, setActive carries
// out the earlier intent first. If setActive fails after it may have stored its own intent, it
// still tries to carry out its own intent.
func (e *Editor) setActive(
	ctx context.Context, id string, active bool,
) (w *registry.Workflow, err error) {
	var unfinished *transitionIntent // an intent that may be stored but not carried out yet
	err = e.storeAndConfirm(ctx, func(ctx context.Context) (uint64, error) {
		have, ok := e.index.Workflow(id)
		if !ok {
			return 0, workflowNotFound(id)
		}
		account, ok := e.index.Account(have.Record.AccountID)
		if !ok {
			return 0, &NotFoundError{
				fmt.Sprintf("account %q of workflow %q", have.Record.AccountID, id),
			}
		}
		last := account.Record.LastTransition
		if behind, undone := e.workflowWithUnfinishedTransition(account.Record); undone {
			unfinished = &transitionIntent{accountID: account.Record.ID}
			if _, err := e.writeTransition(ctx, behind, last); err != nil {
				return 0, err
			}
			return 0, errRetry // the earlier transition is now carried out: start again
		}
		if have.Record.Active != active {
			if err := checkWorkflowPreconditions(ctx, have.Record); err != nil {
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
			return max(have.Revision, account.Revision, e.index.Plans().Revision), errUnchanged
		}
		next := *account.Record
		next.LastTransition = registry.ActivationTransition{
			Number: last.Number + 1, WorkflowID: id, Active: active, RequestedAt: e.now(),
			RequestedBy: ActorOf(ctx),
		}
		_, err := e.put(ctx, e.registry, registry.AccountPrefix+next.ID, &next, account.Revision)
		var unknown *OutcomeUnknownError
		if err == nil || errors.As(err, &unknown) {
			unfinished = &transitionIntent{
				accountID:               next.ID,
				expectedAccountRevision: account.Revision,
			}
		}
		if err != nil {
			return 0, err
		}
		revision, err := e.writeTransition(ctx, have, next.LastTransition)
		if err != nil {
			return 0, err
		}
		unfinished = nil
		w = applyTransition(have.Record, next.LastTransition)
		return revision, nil
	})
	if err != nil && unfinished != nil {
		e.finishTransition(ctx, *unfinished)
	}
	return w, err
}

// transitionIntent identifies an intent to activate or deactivate a workflow. It may be unknown
// whether the intent is stored in the account's record.
type transitionIntent struct {
	accountID string
	// expectedAccountRevision is the revision of the account's record that the write of the intent
	// expects. If the record has a later revision, either the intent has been stored, or another
	// change prevents it from ever being stored. 0 means that the intent is known to be stored.
	expectedAccountRevision uint64
}

// finishTransitionTimeout is the maximum time for carrying out an intent after setActive has
// failed. It must cover the election of a leader of the registry's stream, which takes up to 9 s
// and begins seconds after the last leader was lost.
const finishTransitionTimeout = 15 * time.Second

// finishTransition carries out an intent that setActive has stored or may have stored. If the
// intent is not in the account's record but may still be stored there, finishTransition waits for
// that. It continues even after ctx is done. If it does not finish within finishTransitionTimeout,
// the intent is carried out by the next activation or deactivation in the account, or by
// FinishTransitionsPeriodically.
func (e *Editor) finishTransition(ctx context.Context, i transitionIntent) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTransitionTimeout)
	defer cancel()
	_ = retry.Do(ctx, func(ctx context.Context) error { return e.tryFinishTransition(ctx, i) })
}

// tryFinishTransition finishes the activation or deactivation that is stored as the last transition
// in the account's record. It writes the transition to the record of the workflow that was
// switched, unless that record already has it. It returns errRetry if the intent i is not in the
// account's record yet but may still be stored there.
func (e *Editor) tryFinishTransition(ctx context.Context, i transitionIntent) error {
	if err := e.follower.CatchUp(ctx); err != nil {
		return err
	}
	account, ok := e.index.Account(i.accountID)
	switch {
	case !ok:
		return nil
	case account.Revision <= i.expectedAccountRevision:
		return errRetry
	}
	w, undone := e.workflowWithUnfinishedTransition(account.Record)
	if !undone {
		return nil
	}
	_, err := e.writeTransition(ctx, w, account.Record.LastTransition)
	return err
}

// FinishTransitionsPeriodically carries out transitions that other processes have left unfinished
// because they died or lost the connection to NATS after storing the intent. It checks for
// unfinished transitions at the given interval, until ctx is done. It carries out only those that
// were already unfinished at the previous check, because the process that stored a newer intent may
// still be carrying it out.
func (e *Editor) FinishTransitionsPeriodically(ctx context.Context, interval time.Duration) {
	var seen map[string]uint64
	retry.Every(ctx, interval, func() {
		unfinished := e.index.accountsWithUnfinishedTransition()
		for id, revision := range unfinished {
			if seen[id] == revision {
				trying, cancel := context.WithTimeout(ctx, retry.AttemptTimeout)
				// If this fails, the next check for unfinished transitions tries again.
				_ = e.tryFinishTransition(trying, transitionIntent{accountID: id})
				cancel()
			}
		}
		seen = unfinished
	})
}

// checkPlanAllowsActive returns an error if the plan does not allow a workflow to be active.
func (e *Editor) checkPlanAllowsActive(w *registry.Workflow) error {
	view, ok := e.index.Lookup(w.ID)
	switch {
	case !ok:
		return errRetry // the workflow was deleted after w was read
	case !view.PlanHasWebhooks():
		return ErrWebhooksNotInPlan
	case w.Active && !view.WithinPlan:
		return fmt.Errorf("%w (%d)", ErrActiveWorkflowLimit, view.Plan.MaxActive)
	case !w.Active && view.Plan.MaxActive != registry.Unlimited &&
		e.index.OtherActiveWorkflowCount(w.AccountID, w.ID) >= view.Plan.MaxActive:
		return fmt.Errorf("%w (%d)", ErrActiveWorkflowLimit, view.Plan.MaxActive)
	}
	return nil
}

// workflowWithUnfinishedTransition returns the workflow that the account's last transition
// concerns. The second result reports whether that workflow exists and the transition has not been
// carried out in its record yet.
func (e *Editor) workflowWithUnfinishedTransition(
	account *registry.Account,
) (Versioned[*registry.Workflow], bool) {
	w, ok := e.index.Workflow(account.LastTransition.WorkflowID)
	return w, ok && lacksLastTransition(w.Record, account)
}

// lacksLastTransition reports whether the account's last transition, which concerns w, has not been
// written to w yet.
func lacksLastTransition(w *registry.Workflow, account *registry.Account) bool {
	return w.AccountID == account.ID && w.Transition < account.LastTransition.Number
}

// writeTransition writes a transition to the workflow's record. The audit entry names the actor who
// requested the transition.
func (e *Editor) writeTransition(
	ctx context.Context, w Versioned[*registry.Workflow], t registry.ActivationTransition,
) (uint64, error) {
	return e.put(WithActor(ctx, t.RequestedBy), e.registry, registry.WorkflowPrefix+w.Record.ID,
		applyTransition(w.Record, t), w.Revision)
}

func applyTransition(
	before *registry.Workflow,
	t registry.ActivationTransition,
) *registry.Workflow {
	w := before.Clone()
	w.Active, w.Transition, w.UpdatedAt, w.ActivatedAt = t.Active, t.Number, t.RequestedAt,
		time.Time{}
	if t.Active {
		w.ActivatedAt = t.RequestedAt
	}
	return w
}
