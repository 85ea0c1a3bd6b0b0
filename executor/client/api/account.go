package api

import "time"

// Plan holds the limits of an account.
type Plan struct {
	// ID is the name by which accounts refer to the plan.
	ID                        string    `json:"id" example:"free"`
	WebhookTriggers           bool      `json:"webhookTriggers" doc:"Whether workflows may have webhook triggers at all."`
	MaxActiveWebhookWorkflows *int64    `json:"maxActiveWebhookWorkflows" doc:"How many workflows with webhook triggers may be active at once. null: any number."`
	RateLimit                 RateLimit `json:"rateLimit" doc:"The limit of each workflow without a limit of its own."`
	Default                   bool      `json:"default,omitempty" doc:"Whether a new account that names no plan has this one."`
	BytesPerDay               *int64    `json:"bytesPerDay" doc:"How many bytes the bodies of the account may have in a day, in total. null: any number." example:"1000000000"`
}

// RateLimit is the limit of a token bucket: after a pause, it accepts Requests requests at once,
// then one every WindowSeconds/Requests seconds.
type RateLimit struct {
	// Requests is the number of requests that are accepted in a window.
	Requests int64 `json:"requests" minimum:"1" maximum:"1000000" example:"60"`
	// WindowSeconds is the length of the window in seconds.
	WindowSeconds int64 `json:"windowSeconds" minimum:"1" maximum:"86400" example:"60"`
}

// Account is the owner of workflows.
type Account struct {
	// ID is the name by which workflows refer to the account. It never changes.
	ID   string `json:"id" example:"acme"`
	Name string `json:"name" doc:"For people."`
	Plan string `json:"plan" doc:"The ID of a plan." example:"free"`
	// CreatedAt is the time at which the account was created.
	CreatedAt time.Time `json:"createdAt"`
	// Events is nil if the account's events start no workflow.
	Events *PutEvents `json:"events,omitempty" doc:"Which workflow is started by the account's operator events. Absent: none."`
}

// PutAccount is the part of an account that an operator sets.
type PutAccount struct {
	Name string `json:"name" maxLength:"200" doc:"For people." example:"Acme Inc."`
	Plan string `json:"plan,omitempty" doc:"The ID of a plan. A change takes effect at once. Without one, an account keeps its plan, and a new account has the default plan, if the executor has one (--default-plan)." example:"free"`
}
