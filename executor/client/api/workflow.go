package api

import (
	"encoding/json"
	"time"
)

// Workflow is a workflow with its webhook trigger nodes.
type Workflow struct {
	// ID is the name of the workflow in its webhook URL. It never changes.
	ID string `json:"id" example:"orders"`
	// AccountID is the account that owns the workflow.
	AccountID   string     `json:"accountId" example:"acme"`
	Name        string     `json:"name" doc:"For people."`
	Queue       string     `json:"queue" doc:"Which pool of runners gets its executions." example:"default"`
	Active      bool       `json:"active" doc:"Whether its webhooks start executions. A workflow past its plan's limit is active, too, but refuses requests until there is room."`
	ActivatedAt time.Time  `json:"activatedAt,omitzero" doc:"Absent while it is not active."`
	PlanRefusal string     `json:"planRefusal,omitempty" enum:"plan_limit_exceeded,webhooks_not_in_plan" doc:"Why its webhooks are refused although it is active. Absent: they are accepted."`
	RateLimit   *RateLimit `json:"rateLimit,omitempty" doc:"Absent: the plan's limit applies."`
	// Triggers holds the webhook trigger nodes. It is never null.
	Triggers []WorkflowTrigger `json:"triggers" nullable:"false"`
	// CreatedAt is the time at which the workflow was created.
	CreatedAt time.Time `json:"createdAt"`
	// UpdatedAt is the time of the last change of the workflow.
	UpdatedAt time.Time `json:"updatedAt"`
}

// WorkflowTrigger is a webhook trigger node as its workflow lists it.
type WorkflowTrigger struct {
	// NodeID identifies the node in its workflow.
	NodeID string `json:"nodeId" example:"webhook"`
	Name   string `json:"name" doc:"For people."`

	Filter   json.RawMessage `json:"filter,omitempty" doc:"Which requests start an execution: an object of places and conditions. Absent: every one does." example:"{\"ptr:/action\": \"opened\"}"`
	OrderKey string          `json:"orderKey,omitempty" doc:"The place of a request whose value is its order key, as header:Name, ptr:/json/pointer, form:field or query:name: executions of the workflow with one key run one after the other in each group of runners, in the order in which they were accepted. Absent: they have no order." example:"ptr:/order/id"`
	Answer   *Answer         `json:"answer,omitempty" doc:"How the answer waits for the end of the execution. Absent: it does not."`
}

// PutWorkflow is the part of a workflow that an operator sets.
type PutWorkflow struct {
	AccountID string       `json:"accountId" pattern:"^[A-Za-z0-9_-]{1,64}$" patternDescription:"1 to 64 of the characters A-Z a-z 0-9 _ -" doc:"An account that exists." example:"acme"`
	Name      string       `json:"name" maxLength:"200" doc:"For people." example:"New orders"`
	Queue     string       `json:"queue,omitempty" doc:"Which pool of runners gets its executions. Absent: default." example:"default"`
	RateLimit *RateLimit   `json:"rateLimit,omitempty" doc:"Absent: the plan's limit applies."`
	Triggers  []PutTrigger `json:"triggers" nullable:"false" minItems:"1" maxItems:"100" doc:"The webhook trigger nodes. An existing node keeps its tokens; a node that is left out is deleted."`
}

// PutTrigger is the part of a trigger node that an operator sets.
type PutTrigger struct {
	// NodeID identifies the node in its workflow.
	NodeID        string          `json:"nodeId" pattern:"^[A-Za-z0-9_-]{1,64}$" patternDescription:"1 to 64 of the characters A-Z a-z 0-9 _ -" example:"webhook"`
	Name          string          `json:"name,omitempty" maxLength:"200" doc:"For people."`
	SamplePayload json.RawMessage `json:"samplePayload,omitempty" doc:"Any JSON value, at most 512 KiB. Absent or null: the node keeps its payload. A payload nested deeper than 10,000 levels needs the separate call."`
	Filter        json.RawMessage `json:"filter,omitempty" doc:"Which requests start an execution: an object of places (header:Name, ptr:/json/pointer, form:field, query:name) and conditions: a value, a list of values, or an object of $not, $exists, $prefix, $gt, $gte, $lt and $lte. Absent or null: every one does." example:"{\"ptr:/action\": [\"opened\", \"reopened\"]}"`
	OrderKey      string          `json:"orderKey,omitempty" doc:"The place of a request whose value is its order key, as header:Name, ptr:/json/pointer, form:field or query:name: executions of the workflow with one key run one after the other in each group of runners, in the order in which they were accepted. Absent: they have no order." example:"ptr:/order/id"`
	Answer        *Answer         `json:"answer,omitempty" doc:"How the answer waits for the end of the execution. Absent: it does not."`
}
