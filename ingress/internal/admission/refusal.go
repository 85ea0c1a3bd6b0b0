package admission

import (
	"time"

	"github.com/hookstart/hookstart/shared/webhook"
)

// Refusal is the reason why a request starts nothing.
type Refusal struct {
	Code        webhook.Code
	RetryAfter  time.Duration // with RateLimited and what the stream refuses
	ExecutionID string        // with WorkflowInactive and RunFailed
	Detail      string        // replaces the detail of the code; "" means that it does not
}
