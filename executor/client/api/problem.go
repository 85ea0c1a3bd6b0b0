package api

import (
	"errors"
	"strconv"
)

// Problem is the body of every answer that is not a success: application/problem+json (RFC 9457).
type Problem struct {
	Type       string       `json:"type" format:"uri" example:"https://github.com/hookstart/hookstart#not_found"`
	Title      string       `json:"title" example:"Not found"`
	Status     int          `json:"status" example:"404"`
	Detail     string       `json:"detail" doc:"What happened, and what to do." example:"There is no workflow \"orders\"."`
	Success    bool         `json:"success" doc:"Always false." example:"false"`
	Code       string       `json:"code" doc:"What programs branch on." example:"not_found"`
	Retryable  bool         `json:"retryable" doc:"Whether the same call can succeed later."`
	RetryAfter int64        `json:"retryAfter,omitempty" doc:"After how many seconds."`
	Errors     []FieldError `json:"errors,omitempty" nullable:"false" doc:"With the code invalid: each thing that is wrong."`
}

// FieldError describes what is wrong with one part of a request.
type FieldError struct {
	Field   string `json:"field" doc:"A member of the body, a parameter, or body." example:"triggers[0].nodeId"`
	Problem string `json:"problem" example:"must be 1 to 64 of the characters A-Z a-z 0-9 _ -"`
}

// Error implements error, for clients.
func (p *Problem) Error() string {
	return strconv.Itoa(p.Status) + " " + p.Code + ": " + p.Detail
}

// ErrorCode returns the code, for IsCode.
func (p *Problem) ErrorCode() string { return p.Code }

// IsCode reports whether err is a refusal with one of the codes below: a *Problem, or another error
// with a method ErrorCode.
func IsCode(err error, code string) bool {
	refusal, ok := errors.AsType[interface {
		error
		ErrorCode() string
	}](err)
	return ok && refusal.ErrorCode() == code
}

// These are the codes of problems.
const (
	CodeUnauthorized         = "unauthorized"
	CodeForbidden            = "forbidden"
	CodeNotFound             = "not_found"
	CodeMethodNotAllowed     = "method_not_allowed"
	CodeInvalid              = "invalid"
	CodeBodyTooLarge         = "body_too_large"
	CodePlanLimitExceeded    = "plan_limit_exceeded"
	CodeWebhooksNotInPlan    = "webhooks_not_in_plan"
	CodeSamplePayloadMissing = "sample_payload_missing"
	CodeTooManyTokens        = "too_many_tokens"
	CodeTooManySecrets       = "too_many_secrets"
	CodeTooManyStreams       = "too_many_streams"
	CodeLastSecret           = "last_secret"
	CodeIngressTooOld        = "ingress_too_old"
	CodeQueueMoves           = "queue_moves"
	CodeStreamFull           = "stream_full"
	CodeSecretsKeyMissing    = "secrets_key_missing"
	CodeSenderCannotSign     = "sender_cannot_sign"
	CodeEndpointUnreachable  = "endpoint_unreachable"
	CodeNotFailed            = "not_failed"
	CodeInputExpired         = "input_expired"
	CodeNotFinished          = "not_finished"
	CodeAlreadyEnded         = "already_ended"
	CodeBodyNotKept          = "body_not_kept"
	CodeAccountNotEmpty      = "account_not_empty"
	CodeChangedSince         = "changed_since"
	CodeUndecodable          = "undecodable"
	CodeRefused              = "refused"
	CodeNotEmpty             = "not_empty"
	CodeNotConfirmed         = "not_confirmed"
	CodeUnavailable          = "unavailable"
	CodeInternal             = "internal"
)
