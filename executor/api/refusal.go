package api

import "time"

// Refusal is how often requests to a workflow were refused for one cause.
type Refusal struct {
	Code  string         `json:"code" doc:"What the sender was told." example:"token_invalid"`
	Count int64          `json:"count" minimum:"1" example:"17"`
	Last  RefusedRequest `json:"last" doc:"The last one of them."`
}

// WorkflowRefusal is a Refusal in a list of all workflows.
type WorkflowRefusal struct {
	WorkflowID string `json:"workflowId,omitempty" doc:"Absent: of no workflow that exists, or one of more than an ingress counts apart." example:"orders"`
	Refusal
}

// RefusedRequest is what is kept of a request that was refused.
type RefusedRequest struct {
	At        time.Time `json:"at"`
	BodyBytes *int64    `json:"bodyBytes" doc:"Length of its body, as declared. null: it was not."`
	UserAgent string    `json:"userAgent" doc:"What it says sent it: printable ASCII, cut short, without its token." example:"curl/8.5.0"`
}
