// Package execution is the domain: an execution, its states, how it gets its ID, and how a body becomes a workflow's input. It
// imports the standard library only.
package execution

import (
	"net/textproto"
	"time"
)

// Status is the state of an execution.
type Status string

// An execution is queued, then running, then succeeded or failed; or rejected from the beginning. The last three are final.
const (
	Queued    Status = "queued"
	Running   Status = "running"
	Succeeded Status = "succeeded"
	Failed    Status = "failed"
	Rejected  Status = "rejected"
)

// Statuses lists all of them, in the order of a life.
var Statuses = []Status{Queued, Running, Succeeded, Failed, Rejected}

// Final says whether nothing changes this state any more.
func (s Status) Final() bool { return s == Succeeded || s == Failed || s == Rejected }

// Follows says whether an execution may go from state before to s.
func (s Status) Follows(before Status) bool {
	switch s {
	case Running:
		return before == Queued
	case Succeeded, Failed:
		return before == Queued || before == Running
	case Queued, Rejected:
		return false
	default:
		return false
	}
}

// Source says what started an execution.
type Source string

// A request to the webhook endpoint, or an operator: a rerun, a replay or a requeue.
const (
	Webhook Source = "webhook"
	Rerun   Source = "rerun"
)

// Sources lists all of them.
var Sources = []Source{Webhook, Rerun}

// Values is a request's headers or query parameters: name to values. The values of one name are in the order
// in which they were sent; names are in none. Names of headers are in canonical form (X-Github-Event), however they
// were sent: Get finds both. Names of parameters are as sent.
type Values map[string][]string

// Get is the first value of a name, or of the header that is written so in canonical form; "" for none.
func (v Values) Get(name string) string {
	values, is := v[name]
	if !is {
		values = v[textproto.CanonicalMIMEHeaderKey(name)]
	}
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// Start starts one execution.
type Start struct {
	ID         string // UUID, lower case
	WorkflowID string
	NodeID     string
	AccountID  string
	Queue      string
	Source     Source
	DeliveryID string // the sender's, "" when it sent none
	RerunOf    string // execution ID, "" for none
	ReplayOf   string // execution ID of the one whose request it has once more, "" for none
	AcceptedAt time.Time
	Payload    Payload
	Headers    Values
	Query      Values
	TokenID    string // which token was used, "" for a rerun
	Trace      string // W3C traceparent

	Sender   string // the preset of the node's sender, "" when it has none
	Verified bool   // the request was verified as the sender's
	// DeliveryDerived reports that the delivery ID was read in the body, is a hash, or is under the sender's signature: see
	// DerivedDelivery and SignedDelivery.
	DeliveryDerived bool
}

// Rejection is a request that was refused because its workflow is not active. It is recorded; no run starts.
type Rejection struct {
	ID         string // UUID, never that of a run
	WorkflowID string
	NodeID     string
	AccountID  string
	Queue      string
	DeliveryID string
	At         time.Time
	// Payload is the body, or its type alone if it was not read. Its kind is NoBody, too, when it is declared as JSON and is none.
	Payload      Payload
	DeclaredSize int64 // of the body: its length, if it was read
	Headers      Values
	Query        Values
	Code         string // the refusal's code
	TokenID      string
	Trace        string

	Sender          string // as in Start
	Verified        bool   // as in Start
	DeliveryDerived bool   // as in Start
}

// Progress is what a runner reports of an execution.
type Progress struct {
	ID string
	// Queue and WorkflowID are those of the subject. A runner can name any execution of its queue: the recorder compares them.
	Queue      string
	WorkflowID string
	Status     Status // Running, Succeeded or Failed
	At         time.Time
	StartedAt  time.Time // with Succeeded or Failed: when the attempt began, zero if that is not known
	Attempt    int       // the number of the attempt, from 1; 0: not known
	Error      string    // with Failed
	Output     []byte    // with Succeeded: one JSON text, or empty
}

// NamePattern is the form of workflow, node and account IDs and of queues.
const NamePattern = `^[A-Za-z0-9_-]{1,64}$`

// DefaultQueue is the queue of a workflow that names none.
const DefaultQueue = "default"

// MaxDeliveryID is the length of the longest valid delivery ID, in bytes.
const MaxDeliveryID = 255

// ValidName says whether s can be the ID of a workflow, node or account, or a queue: [A-Za-z0-9_-]{1,64}.
func ValidName(s string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return true
}
