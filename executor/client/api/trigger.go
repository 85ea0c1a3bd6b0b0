package api

import (
	"encoding/json"
	"time"
)

// Trigger describes a webhook trigger node: its URL, tokens, sender and other settings.
type Trigger struct {
	// NodeID identifies the node in its workflow.
	NodeID            string          `json:"nodeId" example:"webhook"`
	Name              string          `json:"name" doc:"A name for people to read. hookstart does not interpret it."`
	URL               string          `json:"url,omitempty" doc:"The URL that senders call, with the newest token. Absent if the caller is a viewer." example:"https://hooks.example.com/webhooks/orders?token=hst_…"`
	Token             string          `json:"token,omitempty" doc:"The newest token. Absent if the caller is a viewer." example:"hst_…"`
	Tokens            []Token         `json:"tokens" nullable:"false" doc:"All tokens that are valid now, newest first."`
	SamplePayload     json.RawMessage `json:"samplePayload" doc:"The sample payload, which is any JSON value. null: none is configured."`
	DeliveryIDHeaders []string        `json:"deliveryIdHeaders" nullable:"false" doc:"The headers in which the delivery ID is looked for. The first one that is not empty is used." example:"[\"X-Webhook-Delivery-Id\"]"`
	DeliveryIDSources []string        `json:"deliveryIdSources" nullable:"false" doc:"The places in which the delivery ID is looked for, including those of the sender's preset. The first one that is not empty is used. If a place consists of parts joined by +, all parts must be present." example:"[\"header:X-Webhook-Delivery-Id\", \"ptr:/id\"]"`
	MaxBodyBytes      int64           `json:"maxBodyBytes" doc:"The maximum size of a body, in bytes." example:"102400"`
	Sender            *Sender         `json:"sender,omitempty" doc:"The sender whose requests are verified. Absent: requests need only the token."`
	RateLimit         RateLimit       `json:"rateLimit" doc:"The rate limit that applies: the workflow's own, or else the plan's."`
	Filter            json.RawMessage `json:"filter,omitempty" doc:"Which requests start an execution: an object of places and conditions. Absent: every request does." example:"{\"ptr:/action\": \"opened\"}"`
	OrderKey          string          `json:"orderKey,omitempty" doc:"The place of the order key in a request: header:Name, ptr:/json/pointer, form:field or query:name. Executions of the workflow with the same key run one after the other in each group of runners, in the order in which they were accepted. Absent: executions are not ordered." example:"ptr:/order/id"`
	Answer            *Answer         `json:"answer,omitempty" doc:"How the answer waits for the end of the execution. Absent: the request is answered as soon as the start is stored."`
	Filtered          *Filtered       `json:"filtered,omitempty" doc:"The requests that did not meet the filter. Absent: there were none, and the node has no filter."`
}

// Answer configures how long the response to a webhook request waits for the execution to end, and
// what its body then contains.
type Answer struct {
	WaitSeconds int64 `json:"waitSeconds" minimum:"1" maximum:"25" doc:"The maximum number of seconds to wait, counted from the request. After that, the answer is 202." example:"10"`
	Raw         bool  `json:"raw,omitempty" doc:"Whether the output alone is the body of the answer. An output of the form {\"http\": {\"status\", \"headers\", \"body\"}} also sets the status and the headers. If the execution does not succeed, the answer is 502 run_failed."`
}

// OrderKeyTrial is the result of testing an order key setting, such as a JSON pointer into the
// body: how many of the last requests to a trigger node contain a value there.
type OrderKeyTrial struct {
	OrderKey  string `json:"orderKey" doc:"The place that was tried." example:"ptr:/order/id"`
	Requests  int    `json:"requests" doc:"The number of requests that were read: the last 20, except for the expired ones." example:"20"`
	WithValue int    `json:"withValue" doc:"The number of those that have a value at the place. The executions of the others have no order." example:"20"`
	Expired   int    `json:"expired,omitempty" doc:"The number of further requests that could not be read, because they had no body, or because the stream no longer has them. Absent: none."`
}

// Filtered describes the requests that did not match a node's filter.
type Filtered struct {
	Count int64             `json:"count" doc:"The number of such requests since the node was created."`
	Last  []FilteredRequest `json:"last" nullable:"false" doc:"The last 20 of them, newest first."`
}

// FilteredRequest holds what is stored about a request that did not match a filter. Nothing from
// its body is stored.
type FilteredRequest struct {
	// At is when the request arrived.
	At         time.Time `json:"at"`
	DeliveryID string    `json:"deliveryId,omitempty" doc:"The delivery ID of the request. Absent: the request had none."`
	Place      string    `json:"place" doc:"The place whose condition did not hold." example:"ptr:/action"`
}

// TriggerSettings holds the settings of a trigger node that a patch can change.
type TriggerSettings struct {
	Name          string          `json:"name,omitempty" maxLength:"200" doc:"A name for people to read. hookstart does not interpret it."`
	SamplePayload json.RawMessage `json:"samplePayload,omitempty" doc:"The sample payload: any JSON value except null, of at most 512 KiB. It is replaced as a whole; null removes it."`
	Filter        json.RawMessage `json:"filter,omitempty" doc:"Which requests start an execution: an object of places and conditions. It is replaced as a whole; null removes it." example:"{\"ptr:/action\": \"opened\"}"`
	OrderKey      string          `json:"orderKey,omitempty" doc:"The place of the order key in a request: header:Name, ptr:/json/pointer, form:field or query:name. Executions of the workflow with the same key run one after the other in each group of runners, in the order in which they were accepted. null removes it." example:"ptr:/order/id"`
	Answer        *Answer         `json:"answer,omitempty" doc:"How the answer waits for the end of the execution. It is replaced as a whole; null removes it."`
}

// Token describes a token of a trigger node. Requests to the node's webhook without a valid token
// are refused.
type Token struct {
	Token string `json:"token,omitempty" doc:"The text of the token. Absent if the caller is a viewer." example:"hst_…"`
	// CreatedAt is when the token was created.
	CreatedAt  time.Time  `json:"createdAt"`
	LastUsedAt *time.Time `json:"lastUsedAt" doc:"When the token was last used, according to the records. null: it was never used."`
	ExpiresAt  time.Time  `json:"expiresAt,omitzero" doc:"When the token expires. Absent: it does not expire."`
}

// RotateToken holds the options for rotating a token.
type RotateToken struct {
	KeepOldForSeconds int64 `json:"keepOldForSeconds,omitempty" minimum:"0" maximum:"2592000" doc:"For how many seconds the current tokens stay valid." example:"3600"`
}

// SendTest describes a test request that the executor sends to a node's webhook URL, as the node's
// sender would send it.
type SendTest struct {
	Body         *string             `json:"body,omitempty" doc:"The body of the request. Absent: the sample payload is sent." example:"{\"hello\": \"world\"}"`
	BodyEncoding string              `json:"bodyEncoding,omitempty" enum:"base64" doc:"How body is encoded. Absent: it is text."`
	ContentType  string              `json:"contentType,omitempty" doc:"The Content-Type of the request. Absent: application/json if the body is JSON, or else none."`
	DeliveryID   string              `json:"deliveryId,omitempty" doc:"The delivery ID, which is put where the sender puts its own. Absent: body and headers are sent as given." example:"test-1"`
	Headers      map[string][]string `json:"headers,omitempty" doc:"Additional headers of the request."`
}

// SentTest describes how the webhook endpoint responded to a test request.
type SentTest struct {
	Success      bool   `json:"success" doc:"Whether the endpoint accepted the request."`
	Status       int    `json:"status" doc:"The HTTP status of the endpoint's answer." example:"200"`
	ExecutionID  string `json:"executionId,omitempty" format:"uuid" doc:"The ID of the execution that was started or rejected. Absent: there is none, as for a handshake or for a request that does not meet the filter."`
	Deduplicated bool   `json:"deduplicated,omitempty" doc:"Whether an earlier request with the same delivery ID started the execution. It is always false if the sender gets an answer that is not JSON."`
	Filtered     bool   `json:"filtered,omitempty" doc:"Whether the request did not meet the node's filter, and so started nothing."`
	Code         string `json:"code,omitempty" doc:"The code with which the request was refused." example:"workflow_inactive"`
	Detail       string `json:"detail,omitempty" doc:"A text for people that says why it was refused."`
	Outcome      string `json:"outcome,omitempty" enum:"unknown" doc:"unknown: the request was refused, but may have been stored under this executionId. Absent: it is known what became of it."`
	RetryAfter   int64  `json:"retryAfter,omitempty" doc:"The number of seconds after which a repeated request can succeed."`
}

// Started identifies an execution that was started.
type Started struct {
	// ExecutionID is the ID of the new execution.
	ExecutionID string `json:"executionId" format:"uuid"`
}
