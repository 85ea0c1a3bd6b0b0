package api

import (
	"errors"
	"strconv"
)

// Problem is the body of every response that is not a success: application/problem+json (RFC 9457).
type Problem struct {
	// Type is the URL of a text that explains the code.
	Type string `json:"type" format:"uri" example:"https://github.com/hookstart/hookstart#not_found"`
	// Title is a human-readable name of the code.
	Title string `json:"title" example:"Not found"`
	// Status is the HTTP status of the response.
	Status     int          `json:"status" example:"404"`
	Detail     string       `json:"detail" doc:"A text for people: what happened, and what to do." example:"There is no workflow \"orders\"."`
	Success    bool         `json:"success" doc:"Always false." example:"false"`
	Code       string       `json:"code" doc:"The code of the error, by which programs can decide what to do." example:"not_found"`
	Retryable  bool         `json:"retryable" doc:"Whether the same call can succeed later."`
	RetryAfter int64        `json:"retryAfter,omitempty" doc:"The number of seconds after which the call can be repeated. Absent: not known."`
	Errors     []FieldError `json:"errors,omitempty" nullable:"false" doc:"What is wrong with the request, if the code is invalid."`
}

// FieldError says what is wrong with one field or parameter of a request, or with its whole body.
type FieldError struct {
	Field string `json:"field" doc:"The name of a member of the body or of a parameter, or body for the whole body." example:"triggers[0].nodeId"`
	// Problem is a human-readable description of what is wrong.
	Problem string `json:"problem" example:"must be 1 to 64 of the characters A-Z a-z 0-9 _ -"`
}

// Error implements error, so that clients can return a Problem as an error.
func (p *Problem) Error() string {
	return strconv.Itoa(p.Status) + " " + p.Code + ": " + p.Detail
}

// ErrorCode returns p.Code. IsCode calls this method to find out the code of an error.
func (p *Problem) ErrorCode() string { return p.Code }

// IsCode reports whether err is, or wraps, an error with the given code: a *Problem, or another
// error with an ErrorCode method.
func IsCode(err error, code string) bool {
	refusal, ok := errors.AsType[interface {
		error
		ErrorCode() string
	}](err)
	return ok && refusal.ErrorCode() == code
}

// Codes of problems.
const (
	CodeUnauthorized         = "unauthorized"           // the call has no valid token or key
	CodeForbidden            = "forbidden"              // the caller may not make the call
	CodeNotFound             = "not_found"              // it does not exist, or may not be seen
	CodeMethodNotAllowed     = "method_not_allowed"     // the path has no such method
	CodeInvalid              = "invalid"                // see Problem.Errors
	CodeBodyTooLarge         = "body_too_large"         // the body of the call is too long
	CodePlanLimitExceeded    = "plan_limit_exceeded"    // the plan allows no more active workflows
	CodeWebhooksNotInPlan    = "webhooks_not_in_plan"   // the plan has no webhook triggers
	CodeSamplePayloadMissing = "sample_payload_missing" // the node has no sample payload
	CodeTooManyTokens        = "too_many_tokens"        // the node has too many valid tokens
	CodeTooManySecrets       = "too_many_secrets"       // the sender can have no more secrets
	CodeTooManyStreams       = "too_many_streams"       // the caller has too many event streams
	CodeLastSecret           = "last_secret"            // a sender's last secret cannot be removed
	CodeIngressTooOld        = "ingress_too_old"        // an ingress is too old for the change
	CodeQueueMoves           = "queue_moves"            // the queue is moving to another stream
	CodeStreamFull           = "stream_full"            // the stream has no space for the change
	CodeSecretsKeyMissing    = "secrets_key_missing"    // the executor has no key to seal secrets
	CodeSenderCannotSign     = "sender_cannot_sign"     // hookstart cannot sign a test request
	CodeEndpointUnreachable  = "endpoint_unreachable"   // the endpoint did not answer the test
	CodeNotFailed            = "not_failed"             // the execution has not failed
	CodeInputExpired         = "input_expired"          // the start message is no longer stored
	CodeNotFinished          = "not_finished"           // the execution has not ended yet
	CodeAlreadyEnded         = "already_ended"          // the execution to cancel has already ended
	CodeBodyNotKept          = "body_not_kept"          // the rejected body was not stored
	CodeAccountNotEmpty      = "account_not_empty"      // the account has workflows or keys
	CodeChangedSince         = "changed_since"          // If-Match or If-None-Match does not hold
	CodeUndecodable          = "undecodable"            // the message cannot be decoded
	CodeRefused              = "refused"                // the database refuses the message
	CodeNotEmpty             = "not_empty"              // a restore needs an empty installation
	CodeNotConfirmed         = "not_confirmed"          // stored, but not in force everywhere yet
	CodeUnavailable          = "unavailable"            // NATS or the database is unreachable
	CodeInternal             = "internal"               // the executor's log has the cause
)
