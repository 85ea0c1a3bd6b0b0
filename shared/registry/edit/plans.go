package edit

import (
	"bytes"
	_ "embed" // the default catalog
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/registry"
)

// DefaultPlansJSON is the content of the catalog file that an installation uses if it does not
// configure one.
//
//go:embed plans.json
var DefaultPlansJSON []byte

// planFileEntry is one plan in the catalog file. It has the same fields as a plan in the operators'
// API.
type planFileEntry struct {
	ID              string `json:"id"`
	WebhookTriggers bool   `json:"webhookTriggers"`
	MaxActive       *int64 `json:"maxActiveWebhookWorkflows"` // nil means no limit
	BytesPerDay     *int64 `json:"bytesPerDay"`               // nil means no limit
	RateLimit       struct {
		Requests      int64 `json:"requests"`
		WindowSeconds int64 `json:"windowSeconds"`
	} `json:"rateLimit"`
}

// ParsePlans parses a catalog file: a JSON list of plans as in the operators' API. Unknown fields
// are an error.
func ParsePlans(file []byte) (registry.Plans, error) {
	var list []planFileEntry
	decoder := json.NewDecoder(bytes.NewReader(file))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&list); err != nil {
		return nil, fmt.Errorf("the plan catalog is not a JSON list of plans: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("the plan catalog has more after the list of plans")
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("the plan catalog has no plan")
	}
	plans := make(registry.Plans, 0, len(list))
	seen := map[string]bool{}
	for i, p := range list {
		switch {
		case !execution.ValidName(p.ID):
			return nil,
				fmt.Errorf("plan %d of the catalog: id %q does not match %s", i+1, p.ID,
					execution.NamePattern)
		case seen[p.ID]:
			return nil, fmt.Errorf("the plan catalog has %q twice", p.ID)
		case p.MaxActive != nil && *p.MaxActive < 0:
			return nil,
				fmt.Errorf("plan %q: maxActiveWebhookWorkflows must be null (unlimited) or at "+
					"least 0", p.ID)
		case p.BytesPerDay != nil && (*p.BytesPerDay < 1 || *p.BytesPerDay > MaxBytesPerDay):
			return nil,
				fmt.Errorf("plan %q: bytesPerDay must be null (unlimited) or 1 to %d, not %d", p.ID,
					int64(MaxBytesPerDay), *p.BytesPerDay)
		}
		if err := checkRateLimit(p.RateLimit.Requests, p.RateLimit.WindowSeconds); err != nil {
			return nil, fmt.Errorf("plan %q: %w", p.ID, err)
		}
		seen[p.ID] = true
		plan := registry.Plan{
			ID:              p.ID,
			WebhookTriggers: p.WebhookTriggers,
			MaxActive:       registry.Unlimited,
			BytesPerDay:     registry.Unlimited,
		}
		plan.RateLimit = registry.RateLimit{
			Requests: p.RateLimit.Requests,
			Window:   time.Duration(p.RateLimit.WindowSeconds) * time.Second,
		}
		if p.MaxActive != nil {
			plan.MaxActive = *p.MaxActive
		}
		if p.BytesPerDay != nil {
			plan.BytesPerDay = *p.BytesPerDay
		}
		plans = append(plans, plan)
	}
	return plans, nil
}

// The maximum values of a plan's limits. They keep the computation of rates, in 64-bit nanoseconds,
// from overflowing. The longest window is a day.
const (
	MaxRateRequests      = 1_000_000
	MaxRateWindowSeconds = 86_400
	MaxBytesPerDay       = 1_000_000_000_000_000
)
