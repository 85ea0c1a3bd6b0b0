package api

import "time"

// Plan holds the limits that apply to every account with this plan.
type Plan struct {
	// ID identifies the plan. Accounts refer to their plan by this ID.
	ID                        string    `json:"id" example:"free"`
	WebhookTriggers           bool      `json:"webhookTriggers" doc:"Whether workflows of accounts with this plan may have webhook triggers."`
	MaxActiveWebhookWorkflows *int64    `json:"maxActiveWebhookWorkflows" doc:"The maximum number of active workflows with webhook triggers. null: no limit."`
	RateLimit                 RateLimit `json:"rateLimit" doc:"The rate limit of each workflow that has no rate limit of its own."`
	Default                   bool      `json:"default,omitempty" doc:"Whether a new account gets this plan if it names none."`
	BytesPerDay               *int64    `json:"bytesPerDay" doc:"The maximum number of bytes of request bodies that are accepted for an account in a day. null: no limit." example:"1000000000"`
}

// RateLimit configures a token bucket: after a pause, Requests requests are accepted immediately,
// and then one every WindowSeconds/Requests seconds.
type RateLimit struct {
	// Requests is the size of a burst, and the average number of requests accepted per window.
	Requests int64 `json:"requests" minimum:"1" maximum:"1000000" example:"60"`
	// WindowSeconds is the length of the window in seconds.
	WindowSeconds int64 `json:"windowSeconds" minimum:"1" maximum:"86400" example:"60"`
}

// Account describes an account, which owns workflows and has a plan that limits them.
type Account struct {
	// ID identifies the account. It never changes.
	ID   string `json:"id" example:"acme"`
	Name string `json:"name" doc:"A name for people to read. hookstart does not interpret it."`
	Plan string `json:"plan" doc:"The ID of a plan." example:"free"`
	// CreatedAt is when the account was created.
	CreatedAt time.Time `json:"createdAt"`
	// Events configures the workflow that the account's operator events start. nil means that
	// operator events start no workflow.
	Events *PutEvents `json:"events,omitempty" doc:"The workflow that the account's operator events start. Absent: operator events start nothing."`
}

// PutAccount holds the settings of an account.
type PutAccount struct {
	Name string `json:"name" maxLength:"200" doc:"A name for people to read. hookstart does not interpret it." example:"Acme Inc."`
	Plan string `json:"plan,omitempty" doc:"The ID of a plan. A change takes effect at once. Absent: an existing account keeps its plan; a new account gets the default plan, if the executor has one (--default-plan)." example:"free"`
}
