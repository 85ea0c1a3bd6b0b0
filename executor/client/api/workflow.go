package api

import (
	"encoding/json"
	"time"
)

// Workflow is a workflow with its webhook trigger nodes.
type Workflow struct {
	// ID identifies the workflow and is part of its webhook URL. It never changes.
	ID string `json:"id" example:"orders"`
	// AccountID is the ID of the account that owns the workflow.
	AccountID   string     `json:"accountId" example:"acme"`
	Name        string     `json:"name" doc:"A name for people to read. hookstart does not interpret it."`
	Queue       string     `json:"queue" doc:"The queue from which runners receive the executions." example:"default"`
	Active      bool       `json:"active" doc:"Whether the webhooks of the workflow start executions. An active workflow that exceeds the limit of its account's plan refuses requests until the account has fewer active workflows."`
	ActivatedAt time.Time  `json:"activatedAt,omitzero" doc:"When the workflow was activated. Absent while it is not active."`
	PlanRefusal string     `json:"planRefusal,omitempty" enum:"plan_limit_exceeded,webhooks_not_in_plan" doc:"Why the requests of this active workflow are refused by the plan. Absent: they are accepted."`
	RateLimit   *RateLimit `json:"rateLimit,omitempty" doc:"The rate limit of the workflow. Absent: the plan's limit applies."`
	// Triggers holds the webhook trigger nodes. It is never null.
	Triggers []WorkflowTrigger `json:"triggers" nullable:"false"`
	// CreatedAt is when the workflow was created.
	CreatedAt time.Time `json:"createdAt"`
	// UpdatedAt is when the workflow was last changed.
	UpdatedAt time.Time `json:"updatedAt"`
}

// WorkflowTrigger describes a webhook trigger node in its workflow.
type WorkflowTrigger struct {
	// NodeID identifies the node in its workflow.
	NodeID string `json:"nodeId" example:"webhook"`
	Name   string `json:"name" doc:"A name for people to read. hookstart does not interpret it."`

	Filter   json.RawMessage `json:"filter,omitempty" doc:"Which requests start an execution: an object of places and conditions. Absent: every request does." example:"{\"ptr:/action\": \"opened\"}"`
	OrderKey string          `json:"orderKey,omitempty" doc:"The place of the order key in a request: header:Name, ptr:/json/pointer, form:field or query:name. Executions of the workflow with the same key run one after the other in each group of runners, in the order in which they were accepted. Absent: executions are not ordered." example:"ptr:/order/id"`
	Answer   *Answer         `json:"answer,omitempty" doc:"How the answer waits for the end of the execution. Absent: the request is answered as soon as the start is stored."`
}

// PutWorkflow holds the settings of a workflow.
type PutWorkflow struct {
	AccountID string       `json:"accountId" pattern:"^[A-Za-z0-9_-]{1,64}$" patternDescription:"1 to 64 of the characters A-Z a-z 0-9 _ -" doc:"The ID of an existing account." example:"acme"`
	Name      string       `json:"name" maxLength:"200" doc:"A name for people to read. hookstart does not interpret it." example:"New orders"`
	Queue     string       `json:"queue,omitempty" doc:"The queue from which runners receive the executions. Absent: the queue default." example:"default"`
	RateLimit *RateLimit   `json:"rateLimit,omitempty" doc:"The rate limit of the workflow. Absent: the plan's limit applies."`
	Triggers  []PutTrigger `json:"triggers" nullable:"false" minItems:"1" maxItems:"100" doc:"The webhook trigger nodes. An existing node keeps its tokens; a node that is left out is deleted."`
}

// PutTrigger holds the settings of a trigger node.
type PutTrigger struct {
	// NodeID identifies the node in its workflow.
	NodeID        string          `json:"nodeId" pattern:"^[A-Za-z0-9_-]{1,64}$" patternDescription:"1 to 64 of the characters A-Z a-z 0-9 _ -" example:"webhook"`
	Name          string          `json:"name,omitempty" maxLength:"200" doc:"A name for people to read. hookstart does not interpret it."`
	SamplePayload json.RawMessage `json:"samplePayload,omitempty" doc:"The sample payload: any JSON value of at most 512 KiB. Absent or null: an existing node keeps its payload. A payload that is nested deeper than 10,000 levels can only be set with the call for sample payloads."`
	Filter        json.RawMessage `json:"filter,omitempty" doc:"Which requests start an execution: an object of places (header:Name, ptr:/json/pointer, form:field, query:name) and conditions: a value, a list of values, or an object of $not, $exists, $prefix, $gt, $gte, $lt and $lte. Absent or null: every request does." example:"{\"ptr:/action\": [\"opened\", \"reopened\"]}"`
	OrderKey      string          `json:"orderKey,omitempty" doc:"The place of the order key in a request: header:Name, ptr:/json/pointer, form:field or query:name. Executions of the workflow with the same key run one after the other in each group of runners, in the order in which they were accepted. Absent: executions are not ordered." example:"ptr:/order/id"`
	Answer        *Answer         `json:"answer,omitempty" doc:"How the answer waits for the end of the execution. Absent: the request is answered as soon as the start is stored."`
}
