package edit

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
	"github.com/hookstart/hookstart/shared/registry"
)

// Activate lets a workflow's webhooks start executions. It fails with ErrNotInPlan
// or ErrPlanLimit, also for a workflow that is active and past its plan's limit.
func (e *Editor) Activate(ctx context.Context, id string) (*hookstartv1.Workflow, error) {
	return e.switchTo(ctx, id, true)
}

// Deactivate ends that; the account's next workflow past the plan's limit moves up.
func (e *Editor) Deactivate(ctx context.Context, id string) (*hookstartv1.Workflow, error) {
	return e.switchTo(ctx, id, false)
}

// switchTo writes twice: the intent into the account's record, which is the lock, and
// then the workflow's record. Of two that race, one loses the update of the account and
// looks again. Whoever finds an intent that was not carried out, carries it out first.
func (e *Editor) switchTo(ctx context.Context, id string, active bool) (w *hookstartv1.Workflow, err error) {
	err = e.change(ctx, func() (uint64, error) {
		have, exists := e.directory.Workflow(id)
		if !exists {
			return 0, noWorkflow(id)
		}
		account, exists := e.directory.Account(have.Record.GetAccountId())
		if !exists {
			return 0, &NotFoundError{fmt.Sprintf("account %q of workflow %q", have.Record.GetAccountId(), id)}
		}
		last := account.Record.GetLastTransition()
		if behind, undone := e.undone(account.Record); undone {
			if _, err := e.carryOut(ctx, behind, last); err != nil {
				return 0, err
			}
			return 0, errRetry // look again, with that done
		}

		if active {
			if err := e.checkPlan(have.Record); err != nil {
				return 0, err
			}
		}
		if have.Record.GetActive() == active {
			w = have.Record
			return max(have.Revision, account.Revision, e.directory.Plans().Revision), errUnchanged
		}
		next := proto.CloneOf(account.Record)
		next.LastTransition = &hookstartv1.Transition{
			Number: last.GetNumber() + 1, WorkflowId: id, Active: active, At: timestamppb.New(e.now()), By: actorRecord(ActorOf(ctx)),
		}
		if _, err := e.put(ctx, e.registry, registry.AccountPrefix+next.GetId(), next, account.Revision); err != nil {
			return 0, err
		}
		revision, err := e.carryOut(ctx, have, next.GetLastTransition())
		if err != nil {
			return 0, err
		}
		w = applied(have.Record, next.GetLastTransition())
		return revision, nil
	})
	return w, err
}

// checkPlan says whether the plan lets a workflow be active.
func (e *Editor) checkPlan(w *hookstartv1.Workflow) error {
	view, found := e.directory.Lookup(w.GetId())
	switch {
	case !found:
		return errRetry // it was deleted meanwhile
	case !view.PlanHasWebhooks():
		return ErrNotInPlan
	case w.GetActive() && !view.WithinPlan:
		return fmt.Errorf("%w (%d)", ErrPlanLimit, view.Plan.MaxActive)
	case !w.GetActive() && view.Plan.MaxActive != registry.Unlimited &&
		e.directory.ActiveBesides(w.GetAccountId(), w.GetId()) >= view.Plan.MaxActive:
		return fmt.Errorf("%w (%d)", ErrPlanLimit, view.Plan.MaxActive)
	}
	return nil
}

// undone says whether the account's last transition was not carried out, and on what.
func (e *Editor) undone(account *hookstartv1.Account) (Versioned[*hookstartv1.Workflow], bool) {
	last := account.GetLastTransition()
	w, exists := e.directory.Workflow(last.GetWorkflowId())
	return w, exists && w.Record.GetAccountId() == account.GetId() && w.Record.GetTransition() < last.GetNumber()
}

// carryOut does it in the name of whoever wanted it.
func (e *Editor) carryOut(ctx context.Context, w Versioned[*hookstartv1.Workflow], t *hookstartv1.Transition) (uint64, error) {
	if by := t.GetBy(); by != nil {
		ctx = By(ctx, Actor{Kind: by.GetKind(), ID: by.GetId(), Name: by.GetName()})
	}
	return e.put(ctx, e.registry, registry.WorkflowPrefix+w.Record.GetId(), applied(w.Record, t), w.Revision)
}

func actorRecord(actor Actor) *hookstartv1.Actor {
	return &hookstartv1.Actor{Kind: actor.Kind, Id: actor.ID, Name: actor.Name}
}

func applied(before *hookstartv1.Workflow, t *hookstartv1.Transition) *hookstartv1.Workflow {
	w := proto.CloneOf(before)
	w.Active, w.Transition, w.UpdatedAt, w.ActivatedAt = t.GetActive(), t.GetNumber(), t.GetAt(), nil
	if t.GetActive() {
		w.ActivatedAt = t.GetAt()
	}
	return w
}
