package api

import (
	"encoding/json"
	"time"
)

// Trigger has the settings of a webhook trigger node.
type Trigger struct {
	NodeID            string          `json:"nodeId" example:"webhook"`
	Name              string          `json:"name" doc:"For people."`
	URL               string          `json:"url,omitempty" doc:"What senders call, with the newest token. Absent: the caller may only read." example:"https://hooks.example.com/webhooks/orders?token=hst_…"`
	Token             string          `json:"token,omitempty" doc:"The newest token. Absent: the caller may only read." example:"hst_…"`
	Tokens            []Token         `json:"tokens" nullable:"false" doc:"All tokens that work now, the newest first."`
	SamplePayload     json.RawMessage `json:"samplePayload" doc:"Any JSON value. null: none is configured."`
	DeliveryIDHeaders []string        `json:"deliveryIdHeaders" nullable:"false" doc:"The headers that may hold the delivery ID; the first that is not empty counts." example:"[\"X-Webhook-Delivery-Id\"]"`
	MaxBodyBytes      int64           `json:"maxBodyBytes" doc:"The largest body that is accepted, in bytes." example:"102400"`
	Sender            *Sender         `json:"sender,omitempty" doc:"Who calls the node. Absent: the token alone opens it."`
	RateLimit         RateLimit       `json:"rateLimit" doc:"In force: the workflow's own, else its plan's."`
}

// Token is a token of a trigger node.
type Token struct {
	Token      string     `json:"token,omitempty" doc:"Absent: the caller may only read." example:"hst_…"`
	CreatedAt  time.Time  `json:"createdAt"`
	LastUsedAt *time.Time `json:"lastUsedAt" doc:"When it was last used, according to the records. null: never."`
	ExpiresAt  time.Time  `json:"expiresAt,omitzero" doc:"When it expires. Absent: never."`
}

// RotateToken says how a token is rotated.
type RotateToken struct {
	KeepOldForSeconds int64 `json:"keepOldForSeconds,omitempty" minimum:"0" maximum:"2592000" doc:"How long the current tokens stay valid." example:"3600"`
}

// Started names an execution that was started.
type Started struct {
	ExecutionID string `json:"executionId" format:"uuid"`
}
