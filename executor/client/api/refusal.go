package api

import "time"

// Refusal is the number of refused requests to a workflow with one cause.
type Refusal struct {
	Code string `json:"code" doc:"What the sender was told." example:"token_invalid"`
	// Count is the number of requests that were refused with the code.
	Count int64          `json:"count" minimum:"1" example:"17"`
	Last  RefusedRequest `json:"last" doc:"The last one of them."`
}

// WorkflowRefusal is a Refusal in a list of all workflows.
type WorkflowRefusal struct {
	WorkflowID string `json:"workflowId,omitempty" doc:"Absent: no workflow has the ID, or the ingress already counts the maximum number of workflows separately." example:"orders"`
	Refusal
}

// RefusedRequest is the part of a refused request that is stored.
type RefusedRequest struct {
	// At is the time at which the request was refused.
	At        time.Time `json:"at"`
	BodyBytes *int64    `json:"bodyBytes" doc:"Declared length of its body. null: not declared."`
	UserAgent string    `json:"userAgent" doc:"Its User-Agent: printable ASCII, truncated, without the token." example:"curl/8.5.0"`
}
