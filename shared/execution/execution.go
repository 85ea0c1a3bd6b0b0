// Package execution is the domain: an execution, its states, how its ID is made, and how a body
// becomes the input of a workflow. It imports the standard library only.
package execution

import (
	"net/textproto"
	"time"
)

// Status is the state of an execution.
type Status string

// The states. An execution goes from queued through running to succeeded or failed, or it is
// rejected from the beginning; or canceled before it ends. The last four are final.
const (
	Queued    Status = "queued"
	Running   Status = "running"
	Succeeded Status = "succeeded"
	Failed    Status = "failed"
	Rejected  Status = "rejected"
	Canceled  Status = "canceled"
)

// Statuses returns all states. Databases hold a state's place in this list: a new one is added at
// its end.
var Statuses = []Status{Queued, Running, Succeeded, Failed, Rejected, Canceled}

// Final reports whether s never changes any more.
func (s Status) Final() bool {
	return s == Succeeded || s == Failed || s == Rejected || s == Canceled
}

// Follows reports whether an execution may go from the state before to s.
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

// Source says what started an execution.
type Source string

// The sources: a request to the webhook endpoint; an operator by a rerun, a replay or a requeue; or
// an operator event of the account.
const (
	Webhook Source = "webhook"
	Rerun   Source = "rerun"
	Event   Source = "event"
)

// Sources returns all sources.
var Sources = []Source{Webhook, Rerun, Event}

// Values holds the headers or query parameters of a request: a name with its values, in the order
// in which they were sent. Names have no order. Names of headers are in canonical form
// (X-Github-Event), however they were sent; Get finds both forms. Names of parameters are as sent.
type Values map[string][]string

// Get returns the first value of name, or of the header whose canonical form name has; "" if there
// is none.
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

// Start is the beginning of one execution: the message that a workflow runner gets.
type Start struct {
	ID         string // the execution's ID: a UUID in lower case
	WorkflowID string // the workflow to run
	NodeID     string // the trigger node at which the run starts
	AccountID  string // the account of the workflow
	Queue      string // the runner queue
	Source     Source // what started the execution
	DeliveryID string // the sender's ID of the delivery; "" if it sent none
	RerunOf    string // the ID of the execution that it reruns; "" for none
	ReplayOf   string // the ID of the execution whose request it repeats; "" for none

	AcceptedAt time.Time // when the ingress or the operators' API accepted it
	Payload    Payload   // the body
	Headers    Values    // the request's headers, without credentials
	Query      Values    // the request's parameters, without the token
	TokenID    string    // the ID of the token that was used; "" for a rerun
	Trace      string    // the W3C traceparent

	Sender   string // the preset of the node's sender; "" if the node has none
	Verified bool   // the request was verified as the sender's
	// DeliveryDerived reports that the delivery ID comes from the body, is a hash, or is under the
	// sender's signature: see DerivedDelivery and SignedDelivery.
	DeliveryDerived bool
	// OrderKey is the order key: executions of one workflow and one key run one after the other. ""
	// means that the execution has no order.
	OrderKey string
}

// Rejection is a request that was refused because its workflow is inactive. It is recorded, and no
// run starts.
type Rejection struct {
	ID         string    // the rejected execution's ID: a UUID, which no run has
	WorkflowID string    // the inactive workflow
	NodeID     string    // the trigger node whose token was used
	AccountID  string    // the account of the workflow
	Queue      string    // the runner queue
	DeliveryID string    // the sender's ID of the delivery; "" if it sent no valid one
	At         time.Time // when the request arrived
	// Payload is the body, or only its type if it was not read. Its kind is NoBody also for a body
	// that is declared as JSON and is not JSON.
	Payload      Payload
	DeclaredSize int64  // the body's length in bytes: the declared one if it was not read
	Headers      Values // the request's headers, without credentials
	Query        Values // the request's parameters, without the token
	Code         string // the code of the refusal
	TokenID      string // the ID of the token that was used
	Trace        string // the W3C traceparent

	Sender          string // see Start.Sender
	Verified        bool   // see Start.Verified
	DeliveryDerived bool   // see Start.DeliveryDerived
}

// Progress is a runner's report on an execution.
type Progress struct {
	ID string // the execution's ID
	// Queue and WorkflowID come from the subject of the report. A runner can name any execution of
	// its queue, so the recorder compares them with the record.
	Queue      string
	WorkflowID string    // see Queue
	Status     Status    // Running, Succeeded, Failed or Canceled
	At         time.Time // when the execution reached the status, by the runner's clock
	// StartedAt is the time at which the last attempt began, with Succeeded, Failed or Canceled.
	// Zero means that it is not known.
	StartedAt time.Time
	Attempt   int    // the number of the attempt, from 1; 0 means not known
	Error     string // the reason of the failure, with Failed
	Output    []byte // the output, with Succeeded: one JSON text, or empty
}

// NamePattern is the regular expression for IDs of workflows, nodes and accounts, and for queues.
const NamePattern = `^[A-Za-z0-9_-]{1,64}$`

// DefaultQueue is the queue of a workflow that names none.
const DefaultQueue = "default"

// MaxDeliveryID is the maximum length of a delivery ID in bytes.
const MaxDeliveryID = 255

// ValidName reports whether s can be an ID of a workflow, node or account, or a queue:
// [A-Za-z0-9_-]{1,64}.
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
