package api

import "time"

// SenderPreset describes a preset for senders, usually for the senders of one provider. It lists
// the settings and the secret that such a sender needs, and the steps to connect the provider.
type SenderPreset struct {
	// ID identifies the preset in Sender.Preset and PutSender.Preset.
	ID      string   `json:"id" example:"stripe"`
	Aliases []string `json:"aliases,omitempty" doc:"Other names under which the preset is accepted."`
	// Title is the display name of the provider.
	Title    string        `json:"title" example:"Stripe"`
	Docs     string        `json:"docs" format:"uri" doc:"The URL of the provider's documentation."`
	Verifies bool          `json:"verifies" doc:"Whether requests are verified with a secret or a public key."`
	Secret   *PresetSecret `json:"secret,omitempty" doc:"The secret that the preset needs. Absent: it needs none."`
	// Settings describes the settings of the preset. It is never null.
	Settings   []PresetSetting `json:"settings" nullable:"false"`
	Setup      []string        `json:"setup" nullable:"false" doc:"The steps to connect the provider, with the names that the provider uses."`
	DeliveryID []string        `json:"deliveryId" nullable:"false" doc:"The places in a request where the delivery ID is looked for, in order." example:"[\"ptr:/id\"]"`
	Handshakes []string        `json:"handshakes" nullable:"false" doc:"The handshakes of the provider, and how they are answered."`
	// Notes holds further information for operators. It is never null.
	Notes    []string `json:"notes" nullable:"false"`
	NeedsURL bool     `json:"needsUrl" doc:"Whether the signature covers the URL. Then the ingress needs its public URL."`
}

// PresetSecret describes the secret that senders with a preset use.
type PresetSecret struct {
	// Label is the provider's name for the secret, as shown on the provider's pages.
	Label    string `json:"label" example:"Signing secret (whsec_…)"`
	Public   bool   `json:"public" doc:"Whether the secret is a public key, which later calls show."`
	Choose   bool   `json:"choose" doc:"Whether the operator chooses the secret and enters it at the provider."`
	Captured bool   `json:"captured" doc:"Whether the provider sends the secret with its first request. Then the sender is set without a secret."`
	Max      int    `json:"max" doc:"The maximum number of secrets that are valid at the same time." example:"4"`
}

// PresetSetting describes a setting of a preset.
type PresetSetting struct {
	// Name is the key of the setting in Sender.Settings and PutSender.Settings.
	Name string `json:"name" example:"toleranceSeconds"`
	// Label is a human-readable description of the setting.
	Label string `json:"label"`
	// Required is true if a PutSender without this setting is refused.
	Required bool `json:"required"`
	Secret   bool `json:"secret" doc:"Whether the value is secret, so that no call shows it again."`
	// Default is the value of an absent setting. "" means none.
	Default string   `json:"default,omitempty"`
	Values  []string `json:"values,omitempty" doc:"The values that are allowed. Absent: any value."`
}

// Sender describes the sender of a trigger node's requests: its preset, secrets and settings, which
// determine how requests are verified, and what the ingresses have received from it.
type Sender struct {
	// Preset is the ID of a SenderPreset.
	Preset   string            `json:"preset" example:"stripe"`
	Secrets  []SenderSecret    `json:"secrets" nullable:"false" doc:"The secrets that are valid now, newest first, without their texts."`
	Settings map[string]string `json:"settings" doc:"The settings that are not secret."`

	LastVerifiedAt  time.Time `json:"lastVerifiedAt,omitzero" doc:"When a request was last verified. Absent: none was."`
	LastHandshakeAt time.Time `json:"lastHandshakeAt,omitzero" doc:"When a handshake was last answered. Absent: none was."`

	LastRefusal         *SenderRefusal `json:"lastRefusal,omitempty" doc:"The last request that was refused because its verification failed. Absent: none was."`
	Deliveries          int64          `json:"deliveries" doc:"The number of deliveries that were stored since the sender was set."`
	DeliveriesWithoutID int64          `json:"deliveriesWithoutId" doc:"The number of those deliveries that had no delivery ID. Their repeats are not recognised."`
}

// SenderRefusal describes the last request that was refused because of its signature, and counts
// such requests.
type SenderRefusal struct {
	// At is when the request was refused.
	At time.Time `json:"at"`
	// Code is the error code in the response to the refused request.
	Code   string `json:"code" example:"signature_invalid"`
	Reason string `json:"reason" doc:"A text for people that says why the request was refused." example:"no signature matches any of the secrets"`
	Count  int64  `json:"count" doc:"The number of requests that were refused since the sender was set."`
}

// SenderSecret describes a secret without revealing it.
type SenderSecret struct {
	// ID identifies the secret in calls that delete it.
	ID    string `json:"id" example:"6TZQK2M4ABCD"`
	Last4 string `json:"last4" doc:"The last characters of the secret. Empty if the secret is short or the caller is a viewer."`
	// SetAt is when the secret was set.
	SetAt     time.Time `json:"setAt"`
	ExpiresAt time.Time `json:"expiresAt,omitzero" doc:"When the secret expires. Absent: it does not expire."`
	PublicKey string    `json:"publicKey,omitempty" doc:"The text of the public key. Absent: it is not a public key."`
	Captured  string    `json:"captured,omitempty" doc:"The text of a secret that the provider has sent. Only one answer contains it, the first that could."`
}

// PutSender holds the settings of a sender.
type PutSender struct {
	// Preset is the ID of a SenderPreset, or an alias of one.
	Preset   string            `json:"preset" example:"stripe"`
	Secrets  []string          `json:"secrets,omitempty" doc:"The secrets, newest first. Absent: the existing secrets are kept." example:"[\"whsec_…\"]"`
	Settings map[string]string `json:"settings,omitempty" doc:"The settings. A secret setting that is left out keeps its value."`
}

// AddSenderSecret is the body of a request that adds a secret to a sender.
type AddSenderSecret struct {
	// Secret is the text of the secret.
	Secret                string `json:"secret" example:"whsec_…"`
	EndOthersAfterSeconds *int64 `json:"endOthersAfterSeconds,omitempty" minimum:"0" maximum:"2592000" doc:"For how many seconds the other secrets stay valid. 0: they expire at once. Absent: they do not expire." example:"86400"`
}
