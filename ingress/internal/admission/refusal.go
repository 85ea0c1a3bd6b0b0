package admission

import (
	"time"
)

// Code names why a request is refused. It is part of the contract with senders.
type Code string

// The codes, in the order in which the causes are checked.
const (
	MethodNotAllowed  Code = "method_not_allowed"
	NotFound          Code = "not_found"
	WorkflowIDMissing Code = "workflow_id_missing"
	TokenMissing      Code = "token_missing"
	BodyTooLarge      Code = "body_too_large"
	WorkflowNotFound  Code = "workflow_not_found"
	TokenInvalid      Code = "token_invalid"
	WebhooksNotInPlan Code = "webhooks_not_in_plan"
	PlanLimitExceeded Code = "plan_limit_exceeded"
	RateLimited       Code = "rate_limited"
	WorkflowInactive  Code = "workflow_inactive"
	DeliveryIDInvalid Code = "delivery_id_invalid"
	BodyUnreadable    Code = "body_unreadable"
	JSONInvalid       Code = "json_invalid"
	Unavailable       Code = "unavailable"
	Overloaded        Code = "overloaded"
	StorageFull       Code = "storage_full"
	Internal          Code = "internal"
)

// Refusal is why a request starts nothing.
type Refusal struct {
	Code        Code
	RetryAfter  time.Duration // with RateLimited and what the stream refuses
	ExecutionID string        // with WorkflowInactive
}
