package registry

import (
	"time"

	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
)

// RateLimit lets Requests requests through at once from idle, then one every
// Window/Requests.
type RateLimit struct {
	Requests int64
	Window   time.Duration
}

// Plan says what an account may do.
type Plan struct {
	ID              string
	WebhookTriggers bool
	MaxActive       int64 // active workflows with webhook triggers; -1: any number
	RateLimit       RateLimit
	BytesPerDay     int64 // of all bodies of the account; -1: any number
}

// Unlimited is Plan.MaxActive and Plan.BytesPerDay for any number.
const Unlimited = -1

func planFromRecord(p *hookstartv1.Plan) *Plan {
	maxActive := int64(Unlimited)
	if p.MaxActiveWebhookWorkflows != nil {
		maxActive = p.GetMaxActiveWebhookWorkflows()
	}
	bytesPerDay := int64(Unlimited)
	if p.BytesPerDay != nil {
		bytesPerDay = p.GetBytesPerDay()
	}
	return &Plan{
		ID: p.GetId(), WebhookTriggers: p.GetWebhookTriggers(), MaxActive: maxActive,
		RateLimit: rateLimitFromRecord(p.GetRateLimit()), BytesPerDay: bytesPerDay,
	}
}

func rateLimitFromRecord(l *hookstartv1.RateLimit) RateLimit {
	if l == nil {
		return RateLimit{}
	}
	return RateLimit{Requests: l.GetRequests(), Window: time.Duration(l.GetWindowSeconds()) * time.Second}
}
