package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
)

type workflowPutCmd struct {
	Workflow     string     `arg:"" type:"id" help:"The workflow's ID."`
	Account      string     `type:"id" help:"The account that owns it. A new workflow needs one." placeholder:"ID"`
	Name         string     `help:"For people. Default: what it is; of a new one, the ID." placeholder:"TEXT"`
	Queue        string     `help:"Which pool of runners gets its executions." placeholder:"QUEUE"`
	RateRequests *int64     `help:"A rate limit of its own. 0: the plan's." placeholder:"N"`
	RateWindow   secondsArg `help:"The time in which that many requests are accepted. Default: 1m." placeholder:"DURATION"`
	Trigger      []string   `help:"A webhook trigger node; may be repeated. Nodes that exist and are not named are deleted with their tokens. Default: what it has; of a new one, webhook." placeholder:"NODE"`
	File         string     `help:"Replace it with this JSON instead, as the API takes it or as workflow get -o json shows it. -: stdin." placeholder:"PATH"`
}

func (*workflowPutCmd) Help() string {
	return `A new workflow is inactive. What the flags do not say stays as it is.

Examples:

  hookstart workflow put orders --account demo --name "New orders"
  hookstart workflow put orders --rate-requests 30 --rate-window 1m
  hookstart workflow get orders -o json | hookstart workflow put orders --file -`
}

func (v *workflowPutCmd) Run(s *session) error {
	w, err := v.put(s)
	return s.showWorkflow(w, s.withPlanHint(err, v.Workflow))
}

func (v *workflowPutCmd) put(s *session) (api.Workflow, error) {
	if v.File != "" {
		text, updatedAt, err := v.readWorkflowFile(s)
		if err != nil {
			return api.Workflow{}, err
		}
		if updatedAt.IsZero() {
			return s.client.PutWorkflowJSON(s.ctx, v.Workflow, text)
		}
		return v.replaceIfUnchanged(s, text, updatedAt)
	}
	var tag string
	have, err := s.client.WithETag(&tag).Workflow(s.ctx, v.Workflow)
	switch {
	case err == nil:
		return v.patchExisting(s, have, tag)
	case !isNotFound(err):
		return api.Workflow{}, err
	case v.Account == "":
		return api.Workflow{}, &usageError{
			fmt.Sprintf("there is no workflow %q yet: a new one needs --account", v.Workflow),
			"hookstart account list",
		}
	}
	put := api.PutWorkflow{
		AccountID: v.Account, Name: cmp.Or(v.Name, v.Workflow), Queue: v.Queue,
		Triggers: v.triggersToPut([]api.WorkflowTrigger{{NodeID: "webhook", Name: "Webhook"}}),
	}
	if put.RateLimit, err = v.rateLimitToPut(nil); err != nil {
		return api.Workflow{}, err
	}
	return s.client.IfNew().PutWorkflow(s.ctx, v.Workflow, put)
}

// patchExisting applies the flags to an existing workflow. have is its current state, and tag its
// ETag. The API replaces the list of nodes as a whole, so if the flags change the nodes, the call
// fails if the workflow has changed since it was read.
func (v *workflowPutCmd) patchExisting(
	s *session,
	have api.Workflow,
	tag string,
) (api.Workflow, error) {
	patch := apiclient.Patch{}
	for member, value := range map[string]string{
		"accountId": v.Account,
		"name":      v.Name,
		"queue":     v.Queue,
	} {
		if value != "" {
			patch[member] = value
		}
	}
	if v.RateRequests != nil || v.RateWindow.seconds != 0 {
		limit, err := v.rateLimitToPut(have.RateLimit)
		if err != nil {
			return api.Workflow{}, err
		}
		patch["rateLimit"] = limit
	}
	if len(v.Trigger) == 0 {
		return s.client.PatchWorkflow(s.ctx, v.Workflow, patch)
	}
	patch["triggers"] = v.triggersToPut(have.Triggers)
	return s.client.IfMatch(tag).PatchWorkflow(s.ctx, v.Workflow, patch)
}

// replaceIfUnchanged replaces the workflow with text, but only if the workflow was last updated at
// updatedAt. A file with old output of "workflow get" therefore cannot undo later changes. If there
// is no such workflow, replaceIfUnchanged creates it.
func (v *workflowPutCmd) replaceIfUnchanged(
	s *session, text []byte, updatedAt time.Time,
) (none api.Workflow, err error) {
	var tag string
	have, err := s.client.WithETag(&tag).Workflow(s.ctx, v.Workflow)
	if isNotFound(err) { // deleted, or the file is from another installation
		return s.client.IfNew().PutWorkflowJSON(s.ctx, v.Workflow, text)
	}
	if err != nil {
		return none, err
	}
	if !have.UpdatedAt.Equal(updatedAt) {
		return none, &usageError{
			fmt.Sprintf("workflow %s was changed at %s, after --file was written", v.Workflow,
				have.UpdatedAt.Format(time.RFC3339)),
			"get it again, or remove updatedAt from the file to replace it all the same",
		}
	}
	return s.client.IfMatch(tag).PutWorkflowJSON(s.ctx, v.Workflow, text)
}

// triggersToPut returns the trigger nodes that the flags name, or all current nodes (have) if the
// flags name none. Nodes that exist already keep their names and settings.
func (v *workflowPutCmd) triggersToPut(have []api.WorkflowTrigger) []api.PutTrigger {
	current := map[string]api.WorkflowTrigger{}
	wanted := v.Trigger
	for _, t := range have {
		current[t.NodeID] = t
		if len(v.Trigger) == 0 {
			wanted = append(wanted, t.NodeID)
		}
	}
	put := make([]api.PutTrigger, len(wanted))
	for i, id := range wanted {
		put[i] = api.PutTrigger{
			NodeID:   id,
			Name:     current[id].Name,
			Filter:   current[id].Filter,
			OrderKey: current[id].OrderKey,
			Answer:   current[id].Answer,
		}
	}
	return put
}

func (v *workflowPutCmd) rateLimitToPut(have *api.RateLimit) (*api.RateLimit, error) {
	if v.RateRequests == nil && v.RateWindow.seconds == 0 {
		return have, nil
	}
	want := api.RateLimit{WindowSeconds: int64(time.Minute / time.Second)}
	if have != nil {
		want = *have
	}
	if v.RateRequests != nil {
		want.Requests = *v.RateRequests
	}
	want.WindowSeconds = cmp.Or(v.RateWindow.seconds, want.WindowSeconds)
	switch {
	case v.RateRequests != nil && want.Requests == 0:
		return nil, nil //nolint:nilnil // no limit of its own
	case want.Requests < 1:
		return nil, &usageError{
			"--rate-window needs --rate-requests, which must be 1 or more",
			"hookstart workflow put --help",
		}
	}
	return &want, nil
}

// readOnlyFields lists the fields of a workflow that only the API sets. The API rejects requests
// that contain them.
var readOnlyFields = []string{
	"id",
	"active",
	"activatedAt",
	"planRefusal",
	"createdAt",
	"updatedAt",
}

const workflowJSONHint = "hookstart workflow get demo -o json shows one"

// readWorkflowFile reads a workflow from the file, which may be the output of "workflow get", and
// removes the fields that only the API sets. updatedAt is the update time in the file, or zero if
// the file has none.
func (v *workflowPutCmd) readWorkflowFile(
	s *session,
) (text []byte, updatedAt time.Time, err error) {
	if v.Account != "" || v.Name != "" || v.Queue != "" || v.RateRequests != nil ||
		v.RateWindow.seconds != 0 || len(v.Trigger) > 0 {
		return nil, updatedAt, &usageError{
			"--file says it all: it goes with no other flag of this verb",
			"hookstart workflow put --help",
		}
	}
	text, err = s.readInputFile("--file", v.File)
	if err != nil {
		return nil, updatedAt, err
	}
	if err := validateJSON("--file", text, workflowJSONHint); err != nil {
		return nil, updatedAt, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return nil, updatedAt, &usageError{
			"--file is not a JSON object: " + err.Error(), workflowJSONHint,
		}
	}
	var id string
	if given, ok := members["id"]; ok && (json.Unmarshal(given, &id) != nil || id != v.Workflow) {
		return nil, updatedAt, &usageError{
			fmt.Sprintf("--file is about the workflow %s, not %q", given, v.Workflow),
			"remove its id to copy it",
		}
	}
	if given, ok := members["updatedAt"]; ok && json.Unmarshal(given, &updatedAt) != nil {
		return nil, updatedAt, &usageError{
			fmt.Sprintf("--file: updatedAt is %s, and not a time", given), workflowJSONHint,
		}
	}
	for _, name := range readOnlyFields {
		delete(members, name)
	}
	text, err = json.Marshal(members)
	return text, updatedAt, err
}
