package admission

import (
	"time"

	"github.com/hookstart/hookstart/shared/webhook"
)

// Refusal describes why a request starts nothing.
type Refusal struct {
	Code webhook.Code
	// set with webhook.CodeRateLimited, and if the stream refuses the message
	RetryAfter  time.Duration
	ExecutionID string // set with webhook.CodeWorkflowInactive and webhook.CodeRunFailed
	Detail      string // replaces the code's default detail; "" means the default
}
