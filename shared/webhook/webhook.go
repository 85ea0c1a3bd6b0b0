// Package webhook is what the ingress, the operators' API, the console and the command line have in common: the codes of refusals, the
// names of headers, and limits.
package webhook

// Code says why a request was refused. It is part of the contract with senders.
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
	SignatureMissing  Code = "signature_missing" // with a sender that verifies, after the body
	SignatureInvalid  Code = "signature_invalid"
	SignatureExpired  Code = "signature_expired"
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

// Codes are all of them, in that order.
func Codes() []Code {
	return []Code{
		MethodNotAllowed, NotFound, WorkflowIDMissing, TokenMissing, BodyTooLarge, WorkflowNotFound, TokenInvalid, WebhooksNotInPlan,
		PlanLimitExceeded, SignatureMissing, SignatureInvalid, SignatureExpired, RateLimited, WorkflowInactive, DeliveryIDInvalid,
		BodyUnreadable, JSONInvalid, Unavailable, Overloaded, StorageFull, Internal,
	}
}

// MaxBodyBytes is the longest body that an ingress accepts unless it was told otherwise.
const MaxBodyBytes = 102_400

// HeaderExecutionID is on every answer of the endpoint that has an execution's ID.
const HeaderExecutionID = "Hookstart-Execution-Id"

// FirstDeliveryIDHeaders hold the delivery ID before all others, whatever is configured.
func FirstDeliveryIDHeaders() []string {
	return []string{"X-Webhook-Delivery-Id", "X-Partner-Delivery"}
}

// DefaultDeliveryIDHeaders hold the delivery ID after the first ones unless an ingress was told
// otherwise: what code hosts, Standard Webhooks and other widespread senders use. Each names the
// delivery and stays the same when it is repeated. Headers that name the hook (X-Gitlab-Webhook-UUID,
// X-Gitlab-Event-UUID, X-Hook-UUID) or that proxies set (X-Request-Id) must not be among them: all
// deliveries after the first would be taken for repeats.
func DefaultDeliveryIDHeaders() []string {
	return []string{
		"X-GitHub-Delivery", "X-Gitea-Delivery", "X-Forgejo-Delivery", "X-Gogs-Delivery", "Webhook-Id",
		"Svix-Id", "Idempotency-Key", "X-Shopify-Webhook-Id", "Linear-Delivery",
		"X-Atlassian-Webhook-Identifier", "X-Request-UUID", "I-Twilio-Idempotency-Token",
	}
}

// SecretHeaders never travel on to a runner: they are credentials, or secrets that a sender sends in clear.
func SecretHeaders() []string {
	return []string{"Authorization", "Cookie", "Proxy-Authorization", "X-Gitlab-Token", "X-Goog-Channel-Token"}
}
