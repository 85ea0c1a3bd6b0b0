package api

import (
	"encoding/json"
	"time"
)

// Trigger holds the settings of a webhook trigger node.
type Trigger struct {
	// NodeID identifies the node in its workflow.
	NodeID            string          `json:"nodeId" example:"webhook"`
	Name              string          `json:"name" doc:"For people."`
	URL               string          `json:"url,omitempty" doc:"What senders call, with the newest token. Absent: the caller may only read." example:"https://hooks.example.com/webhooks/orders?token=hst_…"`
	Token             string          `json:"token,omitempty" doc:"The newest token. Absent: the caller may only read." example:"hst_…"`
	Tokens            []Token         `json:"tokens" nullable:"false" doc:"All tokens that work now, the newest first."`
	SamplePayload     json.RawMessage `json:"samplePayload" doc:"Any JSON value. null: none is configured."`
	DeliveryIDHeaders []string        `json:"deliveryIdHeaders" nullable:"false" doc:"The headers that may hold the delivery ID; the first that is not empty counts." example:"[\"X-Webhook-Delivery-Id\"]"`
	DeliveryIDSources []string        `json:"deliveryIdSources" nullable:"false" doc:"All places of a delivery ID, the sender's own among them; the first that is not empty counts. Several parts that are joined by + are needed together." example:"[\"header:X-Webhook-Delivery-Id\", \"ptr:/id\"]"`
	MaxBodyBytes      int64           `json:"maxBodyBytes" doc:"The largest body that is accepted, in bytes." example:"102400"`
	Sender            *Sender         `json:"sender,omitempty" doc:"Who calls the node. Absent: the token alone opens it."`
	RateLimit         RateLimit       `json:"rateLimit" doc:"In force: the workflow's own, else its plan's."`
	Filter            json.RawMessage `json:"filter,omitempty" doc:"Which requests start an execution: an object of places and conditions. Absent: every one does." example:"{\"ptr:/action\": \"opened\"}"`
	OrderKey          string          `json:"orderKey,omitempty" doc:"The place of a request whose value is its order key, as header:Name, ptr:/json/pointer, form:field or query:name: executions of the workflow with one key run one after the other in each group of runners, in the order in which they were accepted. Absent: they have no order." example:"ptr:/order/id"`
	Answer            *Answer         `json:"answer,omitempty" doc:"How the answer waits for the end of the execution. Absent: it does not, and says that the start is stored."`
	Filtered          *Filtered       `json:"filtered,omitempty" doc:"The requests that did not meet the filter. Absent: the node has no filter, and there were none."`
}

// Answer is the setting with which the answer to a request waits for the end of its execution.
type Answer struct {
	WaitSeconds int64 `json:"waitSeconds" minimum:"1" maximum:"25" doc:"How long it waits at most, from the request on. Then the answer is 202." example:"10"`
	Raw         bool  `json:"raw,omitempty" doc:"The output alone is the answer's body, and {\"http\": {\"status\", \"headers\", \"body\"}} sets its status and headers. A run that does not succeed is 502 run_failed."`
}

// Filtered holds the requests that did not match a node's filter.
type Filtered struct {
	Count int64             `json:"count" doc:"How many, since the node was made."`
	Last  []FilteredRequest `json:"last" nullable:"false" doc:"The last 20, the newest first."`
}

// FilteredRequest is the part of a request that did not match a filter that is stored. It contains
// nothing of the body.
type FilteredRequest struct {
	// At is the time at which the request arrived.
	At         time.Time `json:"at"`
	DeliveryID string    `json:"deliveryId,omitempty" doc:"Absent: it has none."`
	Place      string    `json:"place" doc:"The place whose condition did not hold." example:"ptr:/action"`
}

// TriggerSettings is the part of a trigger node that an operator changes with a patch.
type TriggerSettings struct {
	Name          string          `json:"name,omitempty" maxLength:"200" doc:"For people."`
	SamplePayload json.RawMessage `json:"samplePayload,omitempty" doc:"Any JSON value but null, at most 512 KiB. It is replaced as a whole."`
	Filter        json.RawMessage `json:"filter,omitempty" doc:"Which requests start an execution: an object of places and conditions. It is replaced as a whole; null takes it away." example:"{\"ptr:/action\": \"opened\"}"`
	OrderKey      string          `json:"orderKey,omitempty" doc:"The place of a request whose value is its order key, as header:Name, ptr:/json/pointer, form:field or query:name: executions of the workflow with one key run one after the other in each group of runners, in the order in which they were accepted. null takes it away." example:"ptr:/order/id"`
	Answer        *Answer         `json:"answer,omitempty" doc:"How the answer waits for the end of the execution. It is replaced as a whole; null takes it away."`
}

// Token is a token of a trigger node.
type Token struct {
	Token string `json:"token,omitempty" doc:"Absent: the caller may only read." example:"hst_…"`
	// CreatedAt is the time at which the token was made.
	CreatedAt  time.Time  `json:"createdAt"`
	LastUsedAt *time.Time `json:"lastUsedAt" doc:"When it was last used, according to the records. null: never."`
	ExpiresAt  time.Time  `json:"expiresAt,omitzero" doc:"When it expires. Absent: never."`
}

// RotateToken holds the options of a rotation of a token.
type RotateToken struct {
	KeepOldForSeconds int64 `json:"keepOldForSeconds,omitempty" minimum:"0" maximum:"2592000" doc:"How long the current tokens stay valid." example:"3600"`
}

// SendTest is a request to send to a node's own webhook URL, as its sender would send it.
type SendTest struct {
	Body         *string             `json:"body,omitempty" doc:"Absent: the sample payload." example:"{\"hello\": \"world\"}"`
	BodyEncoding string              `json:"bodyEncoding,omitempty" enum:"base64" doc:"Absent: the body is text."`
	ContentType  string              `json:"contentType,omitempty" doc:"Absent: application/json if the body is JSON, else none."`
	DeliveryID   string              `json:"deliveryId,omitempty" doc:"Put where the sender puts its own. Absent: what is in the body and the headers stays." example:"test-1"`
	Headers      map[string][]string `json:"headers,omitempty" doc:"Further headers."`
}

// SentTest is the answer of the endpoint.
type SentTest struct {
	Success      bool   `json:"success" doc:"Whether it was accepted."`
	Status       int    `json:"status" doc:"Of the endpoint's answer." example:"200"`
	ExecutionID  string `json:"executionId,omitempty" format:"uuid" doc:"Absent: none was started or rejected, as with a handshake or a filter."`
	Deduplicated bool   `json:"deduplicated,omitempty" doc:"The execution is the one of an earlier delivery with the same ID. Not known (false) where the sender gets no answer in JSON."`
	Filtered     bool   `json:"filtered,omitempty" doc:"It does not meet the node's filter, and started nothing."`
	Code         string `json:"code,omitempty" doc:"Why it was refused." example:"workflow_inactive"`
	Detail       string `json:"detail,omitempty" doc:"The same in words."`
	RetryAfter   int64  `json:"retryAfter,omitempty" doc:"After how many seconds it can succeed."`
}

// Started names an execution that was started.
type Started struct {
	// ExecutionID is the ID of the new execution.
	ExecutionID string `json:"executionId" format:"uuid"`
}
