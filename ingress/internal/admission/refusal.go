package admission

import (
	"time"

	"github.com/hookstart/hookstart/shared/webhook"
)

// Refusal describes an error response to a request. The request has started nothing, unless Code is
// webhook.CodeRunFailed or OutcomeUnknown is true.
type Refusal struct {
	Code webhook.Code
	// RetryAfter is how long the sender should wait before it retries. 0 means that the response
	// has no Retry-After header. RetryAfter is set with webhook.CodeRateLimited, and if the stream
	// refuses the message.
	RetryAfter time.Duration
	// ExecutionID is the ID of the execution record, if there is one. It is set with
	// webhook.CodeWorkflowInactive and webhook.CodeRunFailed, and with OutcomeUnknown.
	ExecutionID string
	// OutcomeUnknown means that the message may have been stored, and that the sender cannot send
	// it again safely, because it has no delivery ID. It is set only with webhook.CodeUnavailable.
	OutcomeUnknown bool
	Detail         string // replaces the code's default detail; "" means the default
}
