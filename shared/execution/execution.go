// Package execution is the domain model of executions. It defines an execution and its states, how
// its ID is derived, and how a request body becomes the input of a workflow. It imports only the
// standard library.
package execution

import (
	"net/textproto"
	"time"
)

// Status is the state that an execution has reached, such as Running.
type Status string

// The states of an execution. It goes from Queued through Running to Succeeded or Failed. It can
// become Canceled at any time before it succeeds or fails. A refused execution is Rejected from the
// beginning. Succeeded, Failed, Rejected and Canceled are final.
const (
	Queued    Status = "queued"
	Running   Status = "running"
	Succeeded Status = "succeeded"
	Failed    Status = "failed"
	Rejected  Status = "rejected"
	Canceled  Status = "canceled"
)

// Statuses holds all states. Databases store a state's index in this list, so new ones must be
// appended.
var Statuses = []Status{Queued, Running, Succeeded, Failed, Rejected, Canceled}

// Final reports whether the state can no longer change.
func (s Status) Final() bool {
	return s == Succeeded || s == Failed || s == Rejected || s == Canceled
}

// Follows reports whether an execution's status may change from before to s.
func (s Status) Follows(before Status) bool {
	switch s {
	case Running:
		return before == Queued
	case Succeeded, Failed, Canceled:
		return before == Queued || before == Running
	case Queued, Rejected:
		return false
	default:
		return false
	}
}

// Source identifies what started an execution, such as a webhook request.
type Source string

// The sources of executions. SourceWebhook is a request to the webhook endpoint. SourceRerun is an
// operator's rerun, replay or requeue. SourceEvent is an operator event of the account, which
// reports for example a failed execution.
const (
	SourceWebhook Source = "webhook"
	SourceRerun   Source = "rerun"
	SourceEvent   Source = "event"
)

// Sources lists all sources.
var Sources = []Source{SourceWebhook, SourceRerun, SourceEvent}

// Values holds the headers or the query parameters of a request. It maps each name to its values,
// in the order in which they were sent. The names themselves have no order. Header names are in
// canonical form (X-Github-Event), no matter how they were sent; Get finds them in any form.
// Parameter names are as sent.
type Values map[string][]string

// Get returns the first value of name, or "" if there is none. If v does not contain name as given,
// Get treats it as a header name and looks up its canonical form.
func (v Values) Get(name string) string {
	values, ok := v[name]
	if !ok {
		values = v[textproto.CanonicalMIMEHeaderKey(name)]
	}
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// Start is the start message of one execution, which a workflow runner receives.
type Start struct {
	ID         string // the execution's ID: a UUID in lower case
	WorkflowID string // the workflow to run
	NodeID     string // the trigger node at which the workflow starts
	AccountID  string // the account of the workflow
	Queue      string // the runner queue
	Source     Source // what started the execution
	DeliveryID string // the sender's delivery ID; "" if it sent none
	RerunOf    string // the ID of the execution that this one reruns; "" for none
	ReplayOf   string // the ID of the execution whose request is replayed; "" for none

	AcceptedAt time.Time // when the ingress or the operators' API accepted the start
	Payload    Payload   // the body
	Headers    Values    // the request's headers, without credentials
	Query      Values    // the query parameters, without the token
	TokenID    string    // the ID of the token that was used; "" for a rerun
	Trace      string    // the W3C traceparent

	Sender   string // the preset of the node's sender; "" if the node has none
	Verified bool   // whether the request was verified to be from the sender
	// DeliveryIDDerived reports whether DeliveryID comes from the body, is a hash, or is covered by
	// the sender's signature. Such an ID never equals a delivery ID from a header, even if both
	// have the same text: see MarkDerivedID and MarkSignedID.
	DeliveryIDDerived bool
	// OrderKey keeps executions in order: those of one workflow that have the same key run one
	// after another. "" means that the execution is not ordered.
	OrderKey string
}

// Rejection is a request that was refused because its workflow is inactive. It is recorded as an
// execution with the status Rejected, which never runs.
type Rejection struct {
	ID         string    // the rejected execution's ID: a UUID that no other execution has
	WorkflowID string    // the inactive workflow
	NodeID     string    // the trigger node whose token was used
	AccountID  string    // the account of the workflow
	Queue      string    // the runner queue
	DeliveryID string    // the sender's delivery ID; "" if it sent no valid one
	At         time.Time // when the request arrived
	// Payload is the body. If the body was not read, Payload holds only its Content-Type, and Kind
	// is BodyNone. Kind is also BodyNone if the body was declared as JSON but is not valid JSON.
	Payload      Payload
	DeclaredSize int64  // the body's length in bytes; if the body was not read, its Content-Length
	Headers      Values // the request's headers, without credentials
	Query        Values // the query parameters, without the token
	Code         string // the code of the refusal, such as workflow_inactive
	TokenID      string // the ID of the token that was used
	Trace        string // the W3C traceparent

	Sender            string // see Start.Sender
	Verified          bool   // see Start.Verified
	DeliveryIDDerived bool   // see Start.DeliveryIDDerived
}

// Progress is a runner's report on an execution.
type Progress struct {
	ID string // the execution's ID
	// Queue and WorkflowID come from the subject of the report. A runner can name any execution of
	// its queue, so code that records the report must compare them with the execution record.
	Queue      string
	WorkflowID string    // see Queue
	Status     Status    // Running, Succeeded, Failed or Canceled
	At         time.Time // when the execution reached the status, by the runner's clock
	// StartedAt is when the last attempt began. It is set only if Status is Succeeded, Failed or
	// Canceled. Zero means unknown.
	StartedAt time.Time
	Attempt   int    // number of the attempt, from 1; 0 means unknown
	Group     string // the runner's group; empty means unknown
	// EndedGroups lists the groups other than Group that had already reported a final status of
	// this execution when this report was made. It is set only for an execution with an order key.
	EndedGroups []string
	Error       string // for Failed, why it failed; for Canceled, the error the runner reported
	Output      []byte // the output, if Status is Succeeded: one JSON text, or empty
}

// NamePattern is the regular expression for the IDs of workflows, nodes and accounts, and for the
// names of queues and groups.
const NamePattern = `^[A-Za-z0-9_-]{1,64}$`

// DefaultQueue is the queue of a workflow that does not name one.
const DefaultQueue = "default"

// MaxDeliveryIDBytes is the maximum length of a delivery ID in bytes.
const MaxDeliveryIDBytes = 255

// ValidName reports whether s matches NamePattern.
func ValidName(s string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' &&
			c != '-' {
			return false
		}
	}
	return true
}
