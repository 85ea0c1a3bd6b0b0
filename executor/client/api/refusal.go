package api

import "time"

// Refusal counts a workflow's requests that were refused with one code.
type Refusal struct {
	Code string `json:"code" doc:"The code in the answer to the sender." example:"token_invalid"`
	// Count is the number of requests that were refused with the code.
	Count int64          `json:"count" minimum:"1" example:"17"`
	Last  RefusedRequest `json:"last" doc:"The most recent refused request."`
}

// WorkflowRefusal is a Refusal together with the workflow that the requests were for.
type WorkflowRefusal struct {
	WorkflowID string `json:"workflowId,omitempty" doc:"The ID of the workflow. Absent: no workflow has the ID in the URL, or the ingress already counts the maximum number of workflows separately." example:"orders"`
	Refusal
}

// RefusedRequest holds what is stored about a refused request.
type RefusedRequest struct {
	// At is when the request was refused.
	At        time.Time `json:"at"`
	BodyBytes *int64    `json:"bodyBytes" doc:"The declared length of the body in bytes. null: the request declared none."`
	UserAgent string    `json:"userAgent" doc:"The User-Agent of the request: printable ASCII, truncated, without the token." example:"curl/8.5.0"`
}
