package api

import "time"

// SourceEvent is the source of an execution that an operator event started.
const SourceEvent = "event"

// PutEvents sets the workflow that an account's operator events start.
type PutEvents struct {
	WorkflowID         string   `json:"workflowId" doc:"A workflow of the account: each event starts one execution of it. Events about it start none." example:"alerts"`
	Kinds              []string `json:"kinds,omitempty" maxItems:"20" doc:"The kinds of events that start it. Absent: all." example:"[\"execution.failed\",\"queue.unattended\"]"`
	SilentAfterSeconds int64    `json:"silentAfterSeconds,omitempty" doc:"After how many seconds without a request a trigger node is silent. Absent: twice the longest pause of its last 7 days, and at least 10 minutes." example:"86400"`
}

// Events is the setting of an account's operator events.
type Events struct {
	PutEvents
	Since      time.Time        `json:"since" doc:"What happened before makes no event."`
	Conditions []EventCondition `json:"conditions" doc:"What an event has told of, and has not ended."`
}

// EventCondition is a state whose beginning an operator event has reported, and that has not ended.
type EventCondition struct {
	// Kind is the kind of the event that reported the condition.
	Kind string `json:"kind" example:"queue.unattended"`
	// Since is the time at which the condition began.
	Since time.Time `json:"since"`
	// Queue is the queue in this condition. "" means that it concerns none.
	Queue string `json:"queue,omitempty" example:"default"`
	// WorkflowID is the workflow in this condition. "" means that it concerns none.
	WorkflowID string `json:"workflowId,omitempty" example:"orders"`
	// NodeID is the trigger node in this condition. "" means that it concerns none.
	NodeID string `json:"nodeId,omitempty" example:"webhook"`
}
