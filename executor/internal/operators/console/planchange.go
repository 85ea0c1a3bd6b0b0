package console

import (
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
)

// planChange describes how another plan would affect an account's active workflows.
type planChange struct {
	operate.PlanChange
	Account   accountView
	RateLimit string // rate limit of the new plan
}
