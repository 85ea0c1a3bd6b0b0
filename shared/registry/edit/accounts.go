package edit

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
	"github.com/hookstart/hookstart/shared/registry"
)

// PutPlans puts the plan catalog in force.
func (e *Editor) PutPlans(ctx context.Context, catalog *hookstartv1.PlanCatalog) error {
	return e.change(ctx, func() (uint64, error) {
		have := e.directory.Plans()
		if have.Record != nil && proto.Equal(have.Record, catalog) {
			return have.Revision, errUnchanged
		}
		return e.put(ctx, e.registry, registry.PlansKey, catalog, have.Revision)
	})
}

// PutAccount creates an account or replaces it, and says whether it is new. A change
// of plan is in force when it returns.
func (e *Editor) PutAccount(ctx context.Context, id, name, plan string) (a *hookstartv1.Account, created bool, err error) {
	if err := errors.Join(checkID("id", id), checkText("name", name)); err != nil {
		return nil, false, err
	}
	err = e.change(ctx, func() (uint64, error) {
		if !e.knowsPlan(plan) {
			return 0, &InvalidError{"plan", fmt.Sprintf("there is no plan %q", plan)}
		}
		have, exists := e.directory.Account(id)
		created = !exists
		if exists {
			a = proto.CloneOf(have.Record)
		} else {
			a = &hookstartv1.Account{Id: id, CreatedAt: timestamppb.New(e.now())}
		}
		a.Name, a.Plan = name, plan
		if exists && proto.Equal(a, have.Record) {
			return have.Revision, errUnchanged
		}
		return e.put(ctx, e.registry, registry.AccountPrefix+id, a, have.Revision)
	})
	return a, created, err
}

func (e *Editor) knowsPlan(id string) bool {
	for _, p := range e.directory.Plans().Record.GetPlans() {
		if p.GetId() == id {
			return true
		}
	}
	return false
}
