// Package webhook defines the refusal codes, header names and limits that the ingress, the
// operators' API, the console and the command line tool share.
package webhook

import "strings"

// Code identifies the reason why a request was refused. Codes are part of the contract with
// senders.
type Code string

// The refusal codes, approximately in the order in which the causes are checked. If the node has a
// sender that verifies requests, the body is read before the signature is checked, and the delivery
// ID may be checked before the signature as well: see ingress/steps.go.
const (
	CodeMethodNotAllowed  Code = "method_not_allowed"
	CodeNotFound          Code = "not_found"
	CodeWorkflowIDMissing Code = "workflow_id_missing"
	CodeTokenMissing      Code = "token_missing"
	CodeBodyTooLarge      Code = "body_too_large"
	CodeWorkflowNotFound  Code = "workflow_not_found"
	CodeTokenInvalid      Code = "token_invalid"
	CodeWebhooksNotInPlan Code = "webhooks_not_in_plan"
	CodePlanLimitExceeded Code = "plan_limit_exceeded"
	CodeSignatureMissing  Code = "signature_missing" // checked after the body has been read
	CodeSignatureInvalid  Code = "signature_invalid"
	CodeSignatureExpired  Code = "signature_expired"
	CodeRateLimited       Code = "rate_limited"
	CodeWorkflowInactive  Code = "workflow_inactive"
	CodeDeliveryIDInvalid Code = "delivery_id_invalid"
	CodeBodyUnreadable    Code = "body_unreadable"
	CodeJSONInvalid       Code = "json_invalid"
	CodeUnavailable       Code = "unavailable"
	CodeOverloaded        Code = "overloaded"
	CodeStorageFull       Code = "storage_full"
	// CodeRunFailed is not a refusal: the execution was started, but there is no usable output for
	// the response.
	CodeRunFailed Code = "run_failed"
	CodeInternal  Code = "internal"
)

// Codes returns all codes in the order of their declarations.
func Codes() []Code {
	return []Code{
		CodeMethodNotAllowed, CodeNotFound, CodeWorkflowIDMissing, CodeTokenMissing,
		CodeBodyTooLarge, CodeWorkflowNotFound, CodeTokenInvalid, CodeWebhooksNotInPlan,
		CodePlanLimitExceeded, CodeSignatureMissing, CodeSignatureInvalid, CodeSignatureExpired,
		CodeRateLimited, CodeWorkflowInactive, CodeDeliveryIDInvalid, CodeBodyUnreadable,
		CodeJSONInvalid, CodeUnavailable, CodeOverloaded, CodeStorageFull, CodeRunFailed,
		CodeInternal,
	}
}

// IsSignatureRefusal reports whether the code says that a sender's signature was refused. Such
// codes begin with "signature_".
func (c Code) IsSignatureRefusal() bool { return strings.HasPrefix(string(c), "signature_") }

// ProblemTypePrefix is the URL prefix of the types of problems (RFC 9457). A code is appended to
// it: one of the codes above, or one of the operators' API. The result is the URL of an anchor in
// the README.
const ProblemTypePrefix = "https://github.com/hookstart/hookstart#"

// DefaultMaxBodyBytes is the default limit on the length of a body in bytes.
const DefaultMaxBodyBytes = 102_400

// TokenPrefix is the prefix of every token of a trigger node. It makes a leaked token recognizable.
const TokenPrefix = "hst_"

// HeaderExecutionID is the response header that holds the execution ID. Every response about an
// execution has it.
const HeaderExecutionID = "Hookstart-Execution-Id"

// OutcomeUnknown is the value of the member "outcome" in a refusal. It means that the request may
// have been stored although it was refused. Only refusals of requests without a delivery ID have
// this member: a retry of such a request would not be recognized as a repeat, and would start a
// second execution.
const OutcomeUnknown = "unknown"

// IsHeaderName reports whether name can be the name of a header (RFC 9110).
func IsHeaderName(name string) bool {
	const allowed = "!#$%&'*+-.^_`|~0123456789" +
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	return name != "" && strings.Trim(name, allowed) == ""
}

// PriorityDeliveryIDHeaders returns the headers that are searched for a delivery ID before all
// others, regardless of the configuration.
func PriorityDeliveryIDHeaders() []string {
	return []string{"X-Webhook-Delivery-Id", "X-Partner-Delivery"}
}

// DefaultDeliveryIDHeaders returns the default list of headers that are searched for a delivery ID
// after PriorityDeliveryIDHeaders. They are the headers of code hosts, Standard Webhooks and other
// widespread senders. Each identifies the delivery and stays the same when the delivery is
// repeated. Headers that identify the hook (X-Gitlab-Webhook-UUID, X-Gitlab-Event-UUID,
// X-Hook-UUID) or that proxies set (X-Request-Id) must not be in the list, because all deliveries
// after the first would then be mistaken for repeats.
func DefaultDeliveryIDHeaders() []string {
	return []string{
		"X-GitHub-Delivery", "X-Gitea-Delivery", "X-Forgejo-Delivery", "X-Gogs-Delivery",
		"Webhook-Id",
		"Svix-Id", "Idempotency-Key", "X-Shopify-Webhook-Id", "Linear-Delivery",
		"X-Atlassian-Webhook-Identifier", "X-Request-UUID", "I-Twilio-Idempotency-Token",
	}
}

// SecretHeaders returns the headers that are never forwarded to a runner: credentials, and secrets
// that a sender sends in plain text.
func SecretHeaders() []string {
	return []string{
		"Authorization", "Cookie", "Proxy-Authorization", "X-Gitlab-Token", "X-Goog-Channel-Token",
	}
}
