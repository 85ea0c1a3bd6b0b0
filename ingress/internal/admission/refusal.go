package admission

import (
	"time"

	"github.com/hookstart/hookstart/shared/webhook"
)

// Refusal describes why a request starts nothing.
type Refusal struct {
	Code        webhook.Code
	RetryAfter  time.Duration // set with RateLimited, and if the stream refuses the message
	ExecutionID string        // set with WorkflowInactive and RunFailed
	Detail      string        // replaces the code's default detail; "" means the default
}
