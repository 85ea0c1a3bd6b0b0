package api

import "time"

// SenderPreset describes one kind of sender.
type SenderPreset struct {
	// ID is the value of Sender.Preset and PutSender.Preset.
	ID      string   `json:"id" example:"stripe"`
	Aliases []string `json:"aliases,omitempty" doc:"Other names that are taken for the ID."`
	// Title is the name of the provider, for people.
	Title    string        `json:"title" example:"Stripe"`
	Docs     string        `json:"docs" format:"uri" doc:"The provider's own page."`
	Verifies bool          `json:"verifies" doc:"Whether requests are verified with a secret or a public key."`
	Secret   *PresetSecret `json:"secret,omitempty" doc:"Absent: it has none."`
	// Settings holds the settings that the preset has. It is never null.
	Settings   []PresetSetting `json:"settings" nullable:"false"`
	Setup      []string        `json:"setup" nullable:"false" doc:"The steps to connect it, in the provider's words."`
	DeliveryID []string        `json:"deliveryId" nullable:"false" doc:"Where its delivery IDs are, in order." example:"[\"ptr:/id\"]"`
	Handshakes []string        `json:"handshakes" nullable:"false" doc:"The handshakes that it begins with, and how they are answered."`
	// Notes holds what else an operator should know. It is never null.
	Notes    []string `json:"notes" nullable:"false"`
	NeedsURL bool     `json:"needsUrl" doc:"The URL is signed: the ingress needs its public URL."`
}

// PresetSecret describes a preset's secret.
type PresetSecret struct {
	// Label is the name of the secret on the provider's pages, for people.
	Label    string `json:"label" example:"Signing secret (whsec_…)"`
	Public   bool   `json:"public" doc:"It is a public key, which is shown again."`
	Choose   bool   `json:"choose" doc:"The operator chooses it, and gives it to the provider."`
	Captured bool   `json:"captured" doc:"The provider brings it with its first request: set the sender without one."`
	Max      int    `json:"max" doc:"How many work at the same time." example:"4"`
}

// PresetSetting describes one setting of a preset.
type PresetSetting struct {
	// Name is the key of the setting in Sender.Settings and PutSender.Settings.
	Name string `json:"name" example:"toleranceSeconds"`
	// Label describes the setting for people.
	Label string `json:"label"`
	// Required means that the sender cannot be set without the setting.
	Required bool `json:"required"`
	Secret   bool `json:"secret" doc:"Its value is never shown again."`
	// Default is the value that an absent setting has. "" means none.
	Default string   `json:"default,omitempty"`
	Values  []string `json:"values,omitempty" doc:"The only ones that are taken. Absent: any."`
}

// Sender is the sender of a trigger node's requests.
type Sender struct {
	// Preset is the ID of a SenderPreset.
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
	// At is the time of the refusal.
	At time.Time `json:"at"`
	// Code is the code in the answer to the request.
	Code   string `json:"code" example:"signature_invalid"`
	Reason string `json:"reason" doc:"In words." example:"no signature matches any of the secrets"`
	Count  int64  `json:"count" doc:"How many were refused since the sender was set."`
}

// SenderSecret is a secret without its text.
type SenderSecret struct {
	// ID identifies the secret when it is deleted.
	ID    string `json:"id" example:"6TZQK2M4ABCD"`
	Last4 string `json:"last4" doc:"Its last characters; empty when it is short, or for a viewer."`
	// SetAt is the time at which the secret was set.
	SetAt     time.Time `json:"setAt"`
	ExpiresAt time.Time `json:"expiresAt,omitzero" doc:"When it stops to work. Absent: never."`
	PublicKey string    `json:"publicKey,omitempty" doc:"The text of a public key. Absent: it is a secret."`
	Captured  string    `json:"captured,omitempty" doc:"The text of a secret that the provider has brought: the first answer that has it is the only one."`
}

// PutSender holds the settings of a sender.
type PutSender struct {
	// Preset is the ID of a SenderPreset, or an alias of one.
	Preset   string            `json:"preset" example:"stripe"`
	Secrets  []string          `json:"secrets,omitempty" doc:"The newest first. Absent: those that are there stay." example:"[\"whsec_…\"]"`
	Settings map[string]string `json:"settings,omitempty" doc:"Secret ones that are left out stay."`
}

// AddSenderSecret is a secret to add to a sender.
type AddSenderSecret struct {
	// Secret is the text of the secret.
	Secret                string `json:"secret" example:"whsec_…"`
	EndOthersAfterSeconds *int64 `json:"endOthersAfterSeconds,omitempty" minimum:"0" maximum:"2592000" doc:"How long the others work on; 0: they end at once. Absent: they stay." example:"86400"`
}
