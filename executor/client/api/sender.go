package api

import "time"

// SenderPreset describes one kind of sender.
type SenderPreset struct {
	ID         string          `json:"id" example:"stripe"`
	Aliases    []string        `json:"aliases,omitempty" doc:"Other names that are taken for the ID."`
	Title      string          `json:"title" example:"Stripe"`
	Docs       string          `json:"docs" format:"uri" doc:"The provider's own page."`
	Verifies   bool            `json:"verifies" doc:"Whether requests are verified with a secret or a public key."`
	Secret     *PresetSecret   `json:"secret,omitempty" doc:"Absent: it has none."`
	Settings   []PresetSetting `json:"settings" nullable:"false"`
	Setup      []string        `json:"setup" nullable:"false" doc:"The steps to connect it, in the provider's words."`
	DeliveryID []string        `json:"deliveryId" nullable:"false" doc:"Where its delivery IDs are, in order." example:"[\"ptr:/id\"]"`
	Handshakes []string        `json:"handshakes" nullable:"false" doc:"The handshakes that it begins with, and how they are answered."`
	Notes      []string        `json:"notes" nullable:"false"`
	NeedsURL   bool            `json:"needsUrl" doc:"The URL is signed: the ingress needs its public URL."`
}

// PresetSecret describes a preset's secret.
type PresetSecret struct {
	Label    string `json:"label" example:"Signing secret (whsec_…)"`
	Public   bool   `json:"public" doc:"It is a public key, which is shown again."`
	Choose   bool   `json:"choose" doc:"The operator chooses it, and gives it to the provider."`
	Captured bool   `json:"captured" doc:"The provider brings it with its first request: set the sender without one."`
	Max      int    `json:"max" doc:"How many work at the same time." example:"4"`
}

// PresetSetting describes one setting of a preset.
type PresetSetting struct {
	Name     string   `json:"name" example:"toleranceSeconds"`
	Label    string   `json:"label"`
	Required bool     `json:"required"`
	Secret   bool     `json:"secret" doc:"Its value is never shown again."`
	Default  string   `json:"default,omitempty"`
	Values   []string `json:"values,omitempty" doc:"The only ones that are taken. Absent: any."`
}

// Sender is the sender of a trigger node's requests.
type Sender struct {
	Preset   string            `json:"preset" example:"stripe"`
	Secrets  []SenderSecret    `json:"secrets" nullable:"false" doc:"Those that work now, the newest first, without their texts."`
	Settings map[string]string `json:"settings" doc:"Those that are not secret."`

	LastVerifiedAt  time.Time `json:"lastVerifiedAt,omitzero" doc:"When a request was last verified. Absent: never."`
	LastHandshakeAt time.Time `json:"lastHandshakeAt,omitzero" doc:"When a handshake was last answered. Absent: never."`

	LastRefusal         *SenderRefusal `json:"lastRefusal,omitempty" doc:"The last request that was refused by its signature. Absent: none was."`
	Deliveries          int64          `json:"deliveries" doc:"How many deliveries were stored since the sender was set."`
	DeliveriesWithoutID int64          `json:"deliveriesWithoutId" doc:"How many of them had no delivery ID: their repeats are not recognised."`
}

// SenderRefusal is a request that was refused because of its signature.
type SenderRefusal struct {
	At     time.Time `json:"at"`
	Code   string    `json:"code" example:"signature_invalid"`
	Reason string    `json:"reason" doc:"In words." example:"no signature matches any of the secrets"`
	Count  int64     `json:"count" doc:"How many were refused since the sender was set."`
}

// SenderSecret is a secret without its text.
type SenderSecret struct {
	ID        string    `json:"id" example:"6TZQK2M4ABCD"`
	Last4     string    `json:"last4" doc:"Its last characters; empty when it is short, or for a viewer."`
	SetAt     time.Time `json:"setAt"`
	ExpiresAt time.Time `json:"expiresAt,omitzero" doc:"When it stops to work. Absent: never."`
	PublicKey string    `json:"publicKey,omitempty" doc:"The text of a public key. Absent: it is a secret."`
	Captured  string    `json:"captured,omitempty" doc:"The text of a secret that the provider has brought: the first answer that has it is the only one."`
}

// PutSender holds the settings of a sender.
type PutSender struct {
	Preset   string            `json:"preset" example:"stripe"`
	Secrets  []string          `json:"secrets,omitempty" doc:"The newest first. Absent: those that are there stay." example:"[\"whsec_…\"]"`
	Settings map[string]string `json:"settings,omitempty" doc:"Secret ones that are left out stay."`
}

// AddSenderSecret is a secret to add to a sender.
type AddSenderSecret struct {
	Secret                string `json:"secret" example:"whsec_…"`
	EndOthersAfterSeconds *int64 `json:"endOthersAfterSeconds,omitempty" minimum:"0" maximum:"2592000" doc:"How long the others work on; 0: they end at once. Absent: they stay." example:"86400"`
}
