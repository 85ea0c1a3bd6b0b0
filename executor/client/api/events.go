package api

import "time"

// PutEvents holds the settings of an account's operator events: the workflow that they start, and
// when.
type PutEvents struct {
	WorkflowID         string   `json:"workflowId" doc:"The ID of a workflow of the account. Each event starts one execution of it, except events about this workflow itself." example:"alerts"`
	Kinds              []string `json:"kinds,omitempty" maxItems:"20" doc:"The kinds of events that start the workflow. Absent: all kinds." example:"[\"execution.failed\",\"queue.unattended\"]"`
	SilentAfterSeconds int64    `json:"silentAfterSeconds,omitempty" doc:"The number of seconds without a request after which a trigger node counts as silent. Absent: twice the longest pause between its requests of the last 7 days, but at least 10 minutes." example:"86400"`
}

// Events holds the settings of an account's operator events, and the conditions that an event has
// reported and that still exist.
type Events struct {
	PutEvents
	Since      time.Time        `json:"since" doc:"When the setting was made. What happened earlier causes no event."`
	Conditions []EventCondition `json:"conditions" doc:"The conditions that an event has reported and that have not ended."`
}

// EventCondition is an ongoing condition, such as a queue without runners. An operator event has
// reported its beginning.
type EventCondition struct {
	// Kind is the kind of the event that reported the condition.
	Kind string `json:"kind" example:"queue.unattended"`
	// Since is when the condition began.
	Since time.Time `json:"since"`
	// Queue is the name of the queue that the condition concerns. "" means none.
	Queue string `json:"queue,omitempty" example:"default"`
	// WorkflowID is the ID of the workflow that the condition concerns. "" means none.
	WorkflowID string `json:"workflowId,omitempty" example:"orders"`
	// NodeID is the ID of the trigger node that the condition concerns. "" means none.
	NodeID string `json:"nodeId,omitempty" example:"webhook"`
}
