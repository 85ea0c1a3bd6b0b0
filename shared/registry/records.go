package registry

import (
	"bytes"
	"crypto/sha256"
	"maps"
	"slices"
	"time"
)

// These are the records of the registry. Records from a Directory or a Change are shared and must
// not be changed: change a Clone. Times are UTC; the zero time means not set. The tag "audit" is
// for package edit: it is the field's name in the audit, with ",hidden" if the audit must not show
// its value. Fields with "-" are not in the audit.

// RateLimit is a limit on requests: from idle, Requests requests are admitted at once, then one
// every Window/Requests. The zero value means that no limit is set.
type RateLimit struct {
	Requests int64         `audit:"requests"`
	Window   time.Duration `audit:"windowSeconds"` // whole seconds
}

// Plan is the set of limits and permissions that an account may have.
type Plan struct {
	ID              string
	WebhookTriggers bool      // whether workflows may have webhook triggers
	MaxActive       int64     // active workflows with webhook triggers; Unlimited means any number
	RateLimit       RateLimit // the limit of each workflow without a limit of its own
	BytesPerDay     int64     // bytes of all bodies of the account; Unlimited means any number
}

// Unlimited is the value of Plan.MaxActive and Plan.BytesPerDay that means no limit.
const Unlimited = -1

// Plans is the plan catalog, in the order of the catalog file. It is the record under PlansKey.
type Plans []Plan

// Find returns the plan with an ID, or nil if there is none.
func (p Plans) Find(id string) *Plan {
	for i := range p {
		if p[i].ID == id {
			return &p[i]
		}
	}
	return nil
}

// Account is a customer's account. Its record also serves as the lock under which its workflows are
// activated and deactivated: see LastTransition.
type Account struct {
	ID        string    `audit:"-"`
	Name      string    `audit:"name"`
	Plan      string    `audit:"plan"` // ID of a plan
	CreatedAt time.Time `audit:"-"`
	// LastTransition is the last activation or deactivation of one of this account's workflows. It
	// is written here first, and then to the workflow's record. After a crash between the two
	// writes, the next transition makes the second write first. Number is 0 if there was no
	// transition.
	LastTransition Transition `audit:"-"`
	// Events is the workflow that the account's events start; nil means that there is none. It is
	// shared, and must not be changed.
	Events *OperatorEvents `audit:"events"`

	unknown unknown `audit:"-"`
}

// Transition is one activation or deactivation of a workflow.
type Transition struct {
	// Number counts the account's transitions from 1. A workflow's record holds the number of its
	// last transition.
	Number     int64
	WorkflowID string
	Active     bool      // true for an activation, false for a deactivation
	At         time.Time // when it was requested
	By         Actor     // the actor who requested it

	unknown unknown
}

// Actor is the operator or program that makes a change.
type Actor struct {
	Kind string `json:"kind"`           // admin-token, key, user or system
	ID   string `json:"id,omitempty"`   // the ID of the key or of the user; otherwise ""
	Name string `json:"name,omitempty"` // the name of the key or of the user, for people
}

// Workflow is a workflow that webhooks can start.
type Workflow struct {
	ID          string    `audit:"-"`
	AccountID   string    `audit:"accountId"`
	Name        string    `audit:"name"`
	Queue       string    `audit:"queue"` // queue of the runners
	Active      bool      `audit:"active"`
	ActivatedAt time.Time `audit:"-"` // when it was last activated; zero while it is inactive
	// Transition is the number of the account's transition that last activated or deactivated the
	// workflow, or the number that the account had reached when the workflow was created. It orders
	// the active workflows: the lowest was activated first.
	Transition int64     `audit:"-"`
	RateLimit  RateLimit `audit:"rateLimit"` // zero means the plan's rate limit
	Triggers   []Trigger `audit:"triggers"`  // webhook trigger nodes, in the operator's order
	CreatedAt  time.Time `audit:"-"`
	UpdatedAt  time.Time `audit:"-"`
	// Closed means that no request of the workflow is accepted while an executor copies its
	// delivery IDs to the stream of another queue. It lasts for seconds: see ClosedFor.
	Closed bool `audit:"-"`

	unknown unknown `audit:"-"`
}

// Trigger is a webhook trigger node of a workflow.
type Trigger struct {
	NodeID string      `audit:"-"`
	Name   string      `audit:"name"`
	Tokens []NodeToken `audit:"tokens,hidden"` // tokens that open the node, newest first
	// Sender is the sender that calls the node. nil means that only the token is checked.
	Sender *Sender `audit:"sender"`
	// Filter selects the requests that start an execution, as compact JSON. "" selects all.
	Filter string `audit:"filter"`
	// Answer says how an answer waits for the end of its execution. nil means that it does not
	// wait.
	Answer *Answer `audit:"answer"`
	// OrderKey is the place of a request whose value is its order key. "" means that the executions
	// have no order.
	OrderKey string `audit:"orderKey"`

	unknown unknown `audit:"-"`
}

// Answer is the setting with which the answer to a request waits for the end of its execution.
type Answer struct {
	WaitSeconds int64 `audit:"waitSeconds"` // the maximum wait in seconds
	Raw         bool  `audit:"raw"`         // the output of the execution is the body of the answer

	unknown unknown `audit:"-"`
}

// Clone returns a copy. a may be nil.
func (a *Answer) Clone() *Answer {
	if a == nil {
		return nil
	}
	own := *a
	return &own
}

// NodeToken is the part of a node's token that an ingress may read.
type NodeToken struct {
	Hash      TokenHash // of the token's text
	ExpiresAt int64     // Unix nanoseconds; 0 means never
}

// IsValid reports whether the token has not expired.
func (t NodeToken) IsValid(now time.Time) bool {
	return t.ExpiresAt == 0 || t.ExpiresAt > now.UnixNano()
}

// Expiry returns the time when the token expires. The zero time means never.
func (t NodeToken) Expiry() time.Time {
	if t.ExpiresAt == 0 {
		return time.Time{}
	}
	return time.Unix(0, t.ExpiresAt).UTC()
}

// Sender is the configuration by which a trigger node verifies its requests. Package sender
// verifies them: see OpenSender.
type Sender struct {
	Preset string `audit:"preset"` // the ID of an entry in the table of package sender
	// Secrets holds the secrets, newest first. Expired secrets may still be among them.
	Secrets []SenderSecret `audit:"secrets,hidden"`
	// Settings are the settings that are not secret, by the preset's names. SealedSettings are the
	// secret ones, each encrypted for AboutSetting.
	Settings       map[string]string `audit:"settings,hidden"`
	SealedSettings map[string][]byte `audit:"sealedSettings,hidden"`

	unknown unknown `audit:"-"`
}

// Sealed returns everything in the record that is encrypted.
func (w *Workflow) Sealed() (boxes [][]byte) {
	for _, node := range w.Triggers {
		if node.Sender == nil {
			continue
		}
		for _, secret := range node.Sender.Secrets {
			if len(secret.Sealed) > 0 { // otherwise it is a public key
				boxes = append(boxes, secret.Sealed)
			}
		}
		for _, box := range node.Sender.SealedSettings {
			boxes = append(boxes, box)
		}
	}
	return boxes
}

// SenderSecret is a secret, or a public key, with which a sender's requests are verified.
type SenderSecret struct {
	ID        string // identifies the secret where its text must not appear
	Sealed    []byte // the text, encrypted for AboutSecret; empty means that it is a public key
	PublicKey string // the text of a public key; "" means that Sealed holds a secret
	Last4     string // the last characters of the text, for people; "" if the text is short
	SetAt     time.Time
	ExpiresAt time.Time // the zero time means never
	// Unseen means that the provider sent the secret, and that it was not yet shown to an operator,
	// which happens once.
	Unseen bool

	unknown unknown
}

// Key is a key of the operators' API.
type Key struct {
	ID   string `audit:"-"` // key_ and random characters of base64url
	Name string `audit:"name"`
	Role string `audit:"role"` // viewer, editor or admin
	// AccountID is the only account that the key has access to. "" means all accounts.
	AccountID string            `audit:"accountId"`
	Hash      [sha256.Size]byte `audit:"-"` // SHA-256 of the key's text
	CreatedAt time.Time         `audit:"-"`
	ExpiresAt time.Time         `audit:"expiresAt"` // the zero time means never

	unknown unknown `audit:"-"`
}

// Installation is the identity of the registry. It is the record under InstallationKey. While there
// is none, or with Restoring, no process answers from the registry.
type Installation struct {
	ID string // a random UUID, which is also in the database
	// Restoring is true while a backup is being restored.
	Restoring bool
	// Stamp is a random UUID that is new each time the record is written. A process that has seen
	// the registry go back to an earlier state relies on it again when the stamp has changed: see
	// package consistency.
	Stamp string
	// Life is a random UUID that is new each time the registry is restored from the database's
	// copy.
	Life string

	unknown unknown
}

// Queue holds the settings of a queue. Its runners read the record, too: see
// stream.ReadQueueSettings.
type Queue struct {
	Name string `audit:"-"`
	// PausedSince is the time when the queue was paused. The zero time means that it is not paused.
	PausedSince time.Time `audit:"pausedSince"`
	// PausedUntil is the time when the pause ends by itself. The zero time means that it does not.
	PausedUntil time.Time    `audit:"pausedUntil"`
	Groups      []QueueGroup `audit:"groups"` // sorted by name
	// Lanes is the number of lanes, each with a consumer of its own in every group. 0 means that no
	// workflow of the queue has had an order key, so that the queue has no lanes.
	Lanes int64 `audit:"-"`
	// Stream is the queue's own stream. nil means that the starts of the queue are in the stream
	// that all queues share.
	Stream *QueueStream `audit:"stream"`

	unknown unknown `audit:"-"`
}

// QueueStream holds the phase and the settings of a queue's own stream.
type QueueStream struct {
	Phase    StreamPhase `audit:"-"`        // where starts are stored now
	MaxBytes int64       `audit:"maxBytes"` // maximum size; 0 means no limit
	// Whole seconds; 0 means as the shared stream.
	MaxAge   time.Duration `audit:"maxAgeSeconds"`
	Replicas int64         `audit:"replicas"` // 0 means as many as the shared stream
	// Tags of the servers that hold it; empty means any server.
	PlacementTags []string `audit:"placementTags"`

	unknown unknown `audit:"-"`
}

// StreamPhase says where the starts of a queue are stored while the queue moves to its own stream
// or back. Its values are the values of the enum in proto.
type StreamPhase int32

// These are the phases, in their order.
const (
	// To the shared stream; the delivery IDs are copied to the own one.
	MovingIn  StreamPhase = iota + 1
	ClosedIn              // nowhere, while the last delivery IDs are copied to the own stream
	Own                   // to the own stream
	MovingOut             // to the own stream; the delivery IDs are copied to the shared one
	ClosedOut             // nowhere, while the last delivery IDs are copied to the shared stream
	Draining              // to the shared stream; the own one is kept until it is empty
)

// streamPhases are the names of the phases in the operators' API.
var streamPhases = [...]string{
	"", "movingIn", "closedIn", "own", "movingOut", "closedOut", "draining",
}

// String returns the name of the phase in the operators' API, or "" for an unknown phase.
func (p StreamPhase) String() string {
	if p < 0 || int(p) >= len(streamPhases) {
		return ""
	}
	return streamPhases[p]
}

// Moves reports whether the queue is on the way to its own stream, or back.
func (p StreamPhase) Moves() bool {
	return p == MovingIn || p == ClosedIn || p == MovingOut || p == ClosedOut
}

// Place returns the place where an ingress stores the starts of the queue. The queue may be nil.
func (q *Queue) Place() Place {
	switch {
	case q == nil || q.Stream == nil:
		return PlaceShared
	case q.Stream.Phase == ClosedIn || q.Stream.Phase == ClosedOut:
		return PlaceClosed
	case q.Stream.Phase == Own || q.Stream.Phase == MovingOut:
		return PlaceOwn
	case q.Stream.Phase == MovingIn || q.Stream.Phase == Draining || q.Stream.Phase == 0:
		return PlaceShared
	}
	return PlaceClosed // a later version knows the phase
}

// QueueGroup holds the settings of a group of runners.
type QueueGroup struct {
	Group       string `audit:"-"`
	MaxInFlight int64  `audit:"maxInFlight"` // 0 means as many as its members ask for

	unknown unknown `audit:"-"`
}

// Paused reports whether the queue is paused at a time.
func (q *Queue) Paused(now time.Time) bool {
	return !q.PausedSince.IsZero() && (q.PausedUntil.IsZero() || now.Before(q.PausedUntil))
}

// Clone returns a copy that may be changed.
func (q *Queue) Clone() *Queue {
	own := *q
	own.Groups = slices.Clone(q.Groups)
	if q.Stream != nil {
		stream := *q.Stream
		stream.PlacementTags = slices.Clone(q.Stream.PlacementTags)
		own.Stream = &stream
	}
	return &own
}

// TriggerSecrets are the secrets of a trigger node. They are the record in SecretsBucket, which an
// ingress may not read.
type TriggerSecrets struct {
	Tokens        []Token // the workflow's record holds the hashes of the valid ones
	SamplePayload []byte  // one JSON text; nil means that none is configured
	// Sealed is the encryption of the fields above for AboutTrigger, and replaces them. Empty means
	// that they are not encrypted.
	Sealed []byte

	unknown unknown
}

// Token is an unencrypted token.
type Token struct {
	Text      string // the token as it is in a webhook's URL
	CreatedAt time.Time

	unknown unknown
}

// unknown holds the fields of a record that only a later version knows. A change by this version
// keeps them.
type unknown []byte

// Clone returns a copy that shares nothing that may be changed.
func (w *Workflow) Clone() *Workflow {
	own := *w
	own.Triggers = slices.Clone(w.Triggers)
	for i := range own.Triggers {
		own.Triggers[i].Tokens = slices.Clone(own.Triggers[i].Tokens)
		own.Triggers[i].Sender = own.Triggers[i].Sender.Clone()
		own.Triggers[i].Answer = own.Triggers[i].Answer.Clone()
	}
	return &own
}

// Trigger returns a node of the workflow, or nil if the workflow has no node with this ID. The
// workflow may be nil.
func (w *Workflow) Trigger(nodeID string) *Trigger {
	if w == nil {
		return nil
	}
	for i := range w.Triggers {
		if w.Triggers[i].NodeID == nodeID {
			return &w.Triggers[i]
		}
	}
	return nil
}

// Clone returns a copy that shares nothing that may be changed. For nil it returns nil.
func (s *Sender) Clone() *Sender {
	if s == nil {
		return nil
	}
	own := *s
	own.Secrets, own.Settings, own.SealedSettings = slices.Clone(s.Secrets), maps.Clone(s.Settings),
		maps.Clone(s.SealedSettings)
	return &own
}

// Live returns the secrets that have not expired. For nil it returns none.
func (s *Sender) Live(now time.Time) (live []SenderSecret) {
	if s == nil {
		return nil
	}
	for _, secret := range s.Secrets {
		if secret.ExpiresAt.IsZero() || secret.ExpiresAt.After(now) {
			live = append(live, secret)
		}
	}
	return live
}

// Record is a record of the registry: *Account, *Workflow, *Key, *Installation, Plans or
// *TriggerSecrets.
type Record interface {
	// Encode returns the stored form of the record. Equal records have equal encodings.
	Encode() ([]byte, error)
}

// Equal reports whether two records are equal.
func Equal(a, b Record) bool {
	encoded, err := a.Encode()
	if err != nil {
		return false
	}
	other, err := b.Encode()
	return err == nil && bytes.Equal(encoded, other)
}
