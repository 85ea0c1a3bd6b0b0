package operate

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"strings"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/edit"
)

const workflowsCursorKind = "workflows"

// WorkflowFilter selects workflows. Fields with the zero value do not filter.
type WorkflowFilter struct {
	AccountID string
	Text      string // contained in the ID or the name, ignoring case
	Active    bool   // whether only active workflows are listed
}

func (f WorkflowFilter) matches(w *registry.Workflow) bool {
	if f.Active && !w.Active {
		return false
	}
	text := strings.ToLower(f.Text)
	return strings.Contains(strings.ToLower(w.ID), text) ||
		strings.Contains(strings.ToLower(w.Name), text)
}

// Workflows lists the workflows that match a filter, sorted by ID.
func (s *Service) Workflows(
	ctx context.Context, caller Caller, filter WorkflowFilter, page PageOptions,
) (api.List[api.Workflow], error) {
	return runRead(ctx, s, caller, newAccessRule("Workflows",
		narrowToCallerAccount(&filter.AccountID)),
		func(ctx context.Context) (none api.List[api.Workflow], err error) {
			after, err := page.cursorPosition(workflowsCursorKind)
			if err != nil {
				return none, err
			}
			found := s.findWorkflows(ctx, filter, after, page.Limit+1)
			return newListPage(workflowsCursorKind, found, page, s.apiWorkflow,
				func(r *registry.Workflow) string {
					return r.ID
				}), nil
		})
}

// searchBatchSize is how many workflows or refusals a search reads at a time.
const searchBatchSize = 1000

// workflows iterates over an account's workflows, sorted by ID. It begins with the first ID that is
// greater than after. An empty accountID means the workflows of all accounts.
func (s *Service) workflows(accountID, after string) iter.Seq[*registry.Workflow] {
	return func(yield func(*registry.Workflow) bool) {
		for {
			page := s.config.RegistryIndex.Workflows(accountID, after, searchBatchSize)
			for _, w := range page {
				if !yield(w) {
					return
				}
			}
			if len(page) < searchBatchSize {
				return
			}
			after = page[len(page)-1].ID
		}
	}
}

func (s *Service) findWorkflows(
	ctx context.Context, filter WorkflowFilter, after string, limit int,
) []*registry.Workflow {
	if filter.Text == "" && !filter.Active {
		return s.config.RegistryIndex.Workflows(filter.AccountID, after, limit)
	}
	var found []*registry.Workflow
	for w := range s.workflows(filter.AccountID, after) {
		if len(found) == limit || ctx.Err() != nil {
			break
		}
		if filter.matches(w) {
			found = append(found, w)
		}
	}
	return found
}

// Workflow returns a workflow, including all changes that were confirmed before the call. If it
// does not exist, the error has the code api.CodeNotFound.
func (s *Service) Workflow(ctx context.Context, caller Caller, id string) (api.Workflow, error) {
	return runRead(ctx, s, caller, newAccessRule("Workflow", accessToWorkflow(id)),
		func(ctx context.Context) (none api.Workflow, err error) {
			w, err := s.currentWorkflow(ctx, id)
			if err != nil {
				return none, err
			}
			return s.apiWorkflow(w), nil
		})
}

// currentWorkflow returns a workflow, including all changes that were confirmed before the call.
func (s *Service) currentWorkflow(ctx context.Context, id string) (*registry.Workflow, error) {
	if err := s.config.Editor.EnsureCurrent(ctx); err != nil {
		return nil, err
	}
	have, ok := s.config.RegistryIndex.Workflow(id)
	if !ok {
		return nil, notFoundError("workflow", id, "")
	}
	return have.Record, nil
}

// ExecutionOrigin describes the workflow and the trigger node that an execution or a message
// belongs to. Both may have been deleted.
type ExecutionOrigin struct {
	WorkflowName string
	HasWorkflow  bool // whether the workflow still exists
	HasNode      bool // whether its trigger node still exists
}

// Origin returns the origin of an execution or a message. If the caller has no access to the
// workflow, Origin returns the zero value. It uses this process's index, which may lag slightly
// behind.
func (s *Service) Origin(
	ctx context.Context, caller Caller, workflowID, nodeID string,
) (ExecutionOrigin, error) {
	return runRead(ctx, s, caller, newAccessRule("Origin", accessUnrestricted),
		func(context.Context) (origin ExecutionOrigin, err error) {
			have, ok := s.config.RegistryIndex.Workflow(workflowID)
			if ok && caller.canAccessAccount(have.Record.AccountID) {
				origin = ExecutionOrigin{
					WorkflowName: have.Record.Name,
					HasWorkflow:  true,
					HasNode:      hasNode(have.Record, nodeID),
				}
			}
			return origin, nil
		})
}

func hasNode(w *registry.Workflow, nodeID string) bool {
	return w.Trigger(nodeID) != nil
}

// WithWorkflowIfUpdatedAt returns a context for a conditional change to a workflow. The change
// succeeds only if the workflow was last updated at the given time; otherwise, it fails with
// api.CodeChangedSince. A zero time allows any version.
func WithWorkflowIfUpdatedAt(ctx context.Context, at time.Time) context.Context {
	return edit.WithUpdatedAtCondition(ctx, at)
}

// WithWorkflowIfExists returns a context for a conditional change to a workflow. If the workflow
// does not exist, the change fails with api.CodeChangedSince instead of creating it.
func WithWorkflowIfExists(ctx context.Context) context.Context {
	return edit.WithMustExistCondition(ctx)
}

// PutWorkflow creates an inactive workflow, or replaces an existing one. If mustBeNew is true and
// the workflow exists, it fails with api.CodeChangedSince.
func (s *Service) PutWorkflow(
	ctx context.Context, caller Caller, id string, put api.PutWorkflow, mustBeNew bool,
) (PutResult[api.Workflow], error) {
	spec := registryWorkflowSpec(put)
	spec.ID, spec.OnlyIfNew = id, mustBeNew
	spec.OnlyInAccount = caller.AccountID // another account may create the ID before the change
	return runChange(ctx, s, caller, newAccessRule("PutWorkflow",
		accessToNewWorkflow(id, put.AccountID)),
		s.config.ChangeTimeout,
		func(ctx context.Context) (none PutResult[api.Workflow], err error) {
			var w *registry.Workflow
			created, forget := false, requestRecordsDeleter{service: s, workflowID: id}
			spec.BeforeAccountChange = forget.deleteBeforeStore
			err = s.storeWithWorkflowMove(ctx, func(ctx context.Context) (err error) {
				w, created, err = s.config.Editor.PutWorkflow(ctx, spec)
				return err
			})
			if !created { // for a new workflow, the recorder ignores older reports itself
				err = forget.deleteAfterStore(ctx, err)
			}
			if err != nil {
				return none, err
			}
			return PutResult[api.Workflow]{s.apiWorkflow(w), created}, nil
		})
}

// requestRecordsDeleter deletes the records of a workflow's requests when a call creates the
// workflow or moves it to another account. These records do not name an account, so the new account
// could otherwise see requests from before the change.
//
// The records are deleted both before and after the change is stored. If they were deleted only
// afterwards, a call could fail in between, and a repeated call would find nothing to change. If
// they were deleted only before, the records of requests that arrive until the change would stay.
type requestRecordsDeleter struct {
	service       *Service
	workflowID    string
	deletionBegun bool // deleteBeforeStore has been called
}

// deleteBeforeStore deletes the records. It must be called before each attempt to store the change.
func (f *requestRecordsDeleter) deleteBeforeStore(ctx context.Context) error {
	f.deletionBegun = true
	return f.service.config.Store.ForgetWorkflowReports(ctx, f.workflowID)
}

// deleteAfterStore deletes the records that were added since deleteBeforeStore was called. It does
// nothing if deleteBeforeStore was not called. It must be called after the last attempt to store
// the change, and stored must be the error of that attempt.
//
// deleteAfterStore deletes the records even if stored is not nil, because the change may have been
// stored nevertheless. It also does so if ctx has ended, because a move to another queue may take
// longer than ctx. It returns stored or, if that is nil, the error of the deletion.
func (f *requestRecordsDeleter) deleteAfterStore(ctx context.Context, stored error) error {
	if !f.deletionBegun {
		return stored
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.service.config.ChangeTimeout)
	defer cancel()
	err := f.service.config.Store.ForgetWorkflowReports(ctx, f.workflowID)
	return cmp.Or(stored, err)
}

// registryWorkflowSpec converts a workflow to the registry's form.
func registryWorkflowSpec(put api.PutWorkflow) edit.WorkflowSpec {
	spec := edit.WorkflowSpec{
		AccountID: put.AccountID,
		Name:      put.Name,
		Queue:     put.Queue,
		RateLimit: registryRateLimit(put.RateLimit),
	}
	for _, t := range put.Triggers {
		trigger := edit.TriggerSpec{
			NodeID: t.NodeID,
			Name:   t.Name,
			TriggerSettings: edit.TriggerSettings{
				Filter:       t.Filter,
				OrderKey:     t.OrderKey,
				SyncResponse: registryAnswer(t.Answer),
			},
		}
		if !bytes.Equal(t.SamplePayload, []byte("null")) {
			trigger.SamplePayload = t.SamplePayload
		}
		spec.Triggers = append(spec.Triggers, trigger)
	}
	return spec
}

// apiPutWorkflow converts a specification to the API's form, without sample payloads. It is the
// inverse of registryWorkflowSpec.
func apiPutWorkflow(spec *edit.WorkflowSpec) api.PutWorkflow {
	put := api.PutWorkflow{AccountID: spec.AccountID, Name: spec.Name, Queue: spec.Queue}
	if spec.RateLimit != nil {
		limit := apiRateLimit(*spec.RateLimit)
		put.RateLimit = &limit
	}
	for _, t := range spec.Triggers {
		put.Triggers = append(put.Triggers, api.PutTrigger{
			NodeID:   t.NodeID,
			Name:     t.Name,
			Filter:   t.Filter,
			OrderKey: t.OrderKey,
			Answer:   apiAnswer(t.SyncResponse),
		})
	}
	return put
}

// PatchWorkflow changes a workflow by calling patch, which edits the workflow's settings in place.
// The settings include everything that an operator can change, except sample payloads. patch may be
// called more than once.
func (s *Service) PatchWorkflow(
	ctx context.Context, caller Caller, id string, patch func(*api.PutWorkflow) error,
) (api.Workflow, error) {
	r := newAccessRule("PatchWorkflow", accessToWorkflow(id))
	return runChange(ctx, s, caller, r, s.config.ChangeTimeout,
		func(ctx context.Context) (none api.Workflow, err error) {
			forget := requestRecordsDeleter{service: s, workflowID: id}
			w, err := s.changeWorkflow(ctx, id, func(spec *edit.WorkflowSpec) error {
				put := apiPutWorkflow(spec)
				if err := patch(&put); err != nil {
					return err
				}
				if !caller.canAccessAccount(put.AccountID) {
					return unknownAccountError(put.AccountID)
				}
				*spec = registryWorkflowSpec(put)
				spec.OnlyInAccount = caller.AccountID
				spec.BeforeAccountChange = forget.deleteBeforeStore
				return nil
			})
			if err = forget.deleteAfterStore(ctx, err); err != nil {
				return none, err
			}
			return s.apiWorkflow(w), nil
		})
}

// DeleteWorkflow deletes a workflow with its tokens and sample payloads.
func (s *Service) DeleteWorkflow(ctx context.Context, caller Caller, id string) error {
	return s.runChangeWithoutResult(ctx, caller,
		newAccessRule("DeleteWorkflow", accessToWorkflow(id)), s.config.ChangeTimeout,
		func(ctx context.Context) error {
			return s.config.Editor.DeleteWorkflow(ctx, id)
		})
}

// Activate activates a workflow, so that requests to its webhooks start executions.
func (s *Service) Activate(ctx context.Context, caller Caller, id string) (api.Workflow, error) {
	return s.setActive(ctx, caller, "Activate", id, s.config.Editor.Activate)
}

// Deactivate deactivates a workflow, so that requests to its webhooks no longer start executions.
func (s *Service) Deactivate(ctx context.Context, caller Caller, id string) (api.Workflow, error) {
	return s.setActive(ctx, caller, "Deactivate", id, s.config.Editor.Deactivate)
}

func (s *Service) setActive(
	ctx context.Context, caller Caller, operation, id string,
	apply func(context.Context, string) (*registry.Workflow, error),
) (api.Workflow, error) {
	return runChange(ctx, s, caller, newAccessRule(operation, accessToWorkflow(id)),
		s.config.ChangeTimeout,
		func(ctx context.Context) (none api.Workflow, err error) {
			w, err := apply(ctx, id)
			if err != nil {
				return none, err
			}
			return s.apiWorkflow(w), nil
		})
}

func (s *Service) apiWorkflow(w *registry.Workflow) api.Workflow {
	result := api.Workflow{
		ID:          w.ID,
		AccountID:   w.AccountID,
		Name:        w.Name,
		Queue:       w.Queue,
		Active:      w.Active,
		Triggers:    make([]api.WorkflowTrigger, 0, len(w.Triggers)),
		ActivatedAt: w.ActivatedAt,
		CreatedAt:   w.CreatedAt,
		UpdatedAt:   w.UpdatedAt,
		PlanRefusal: s.planRefusalCode(w),
	}
	if w.RateLimit != (registry.RateLimit{}) {
		limit := apiRateLimit(w.RateLimit)
		result.RateLimit = &limit
	}
	for _, t := range w.Triggers {
		result.Triggers = append(result.Triggers, api.WorkflowTrigger{
			NodeID:   t.NodeID,
			Name:     t.Name,
			Filter:   json.RawMessage(t.Filter),
			OrderKey: t.OrderKey,
			Answer:   apiAnswer(t.SyncResponse),
		})
	}
	return result
}

// planRefusalCode returns the error code for requests to an active workflow that the account's plan
// does not allow. It returns "" if the plan allows the workflow.
func (s *Service) planRefusalCode(w *registry.Workflow) string {
	view, ok := s.config.RegistryIndex.Lookup(w.ID)
	switch {
	case !w.Active || !ok || !view.Workflow.Active:
		return ""
	case !view.PlanHasWebhooks():
		return api.CodeWebhooksNotInPlan
	case !view.WithinPlan:
		return api.CodePlanLimitExceeded
	default:
		return ""
	}
}
