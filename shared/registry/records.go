package registry

import (
	"bytes"
	"crypto/sha256"
	"maps"
	"slices"
	"time"
)

// The records of the registry. Records from a Directory or a Change are shared and must not be changed: change a Clone.
// Times are UTC; a zero time is not set. The tag "audit" is for package edit: it is the field's name in the audit, with
// ",hidden" if the audit must not show its value; fields with "-" are not in the audit.

// RateLimit lets Requests requests through at once from idle, then one every Window/Requests. The zero value is none.
type RateLimit struct {
	Requests int64         `audit:"requests"`
	Window   time.Duration `audit:"windowSeconds"` // whole seconds
}

// Plan says what an account may do.
type Plan struct {
	ID              string
	WebhookTriggers bool
	MaxActive       int64     // active workflows with webhook triggers; Unlimited: any number
	RateLimit       RateLimit // of each workflow that sets none of its own
	BytesPerDay     int64     // of all bodies of the account; Unlimited: any number
}

// Unlimited is Plan.MaxActive and Plan.BytesPerDay for any number.
const Unlimited = -1

// Plans is the plan catalog, in the catalog file's order: the record under PlansKey.
type Plans []Plan

// Find returns a plan; nil: there is none with this ID.
func (p Plans) Find(id string) *Plan {
	for i := range p {
		if p[i].ID == id {
			return &p[i]
		}
	}
	return nil
}

// Account is an account. Its record is also the lock under which its workflows are switched on and off: see
// LastTransition.
type Account struct {
	ID        string    `audit:"-"`
	Name      string    `audit:"name"`
	Plan      string    `audit:"plan"` // the ID of a plan
	CreatedAt time.Time `audit:"-"`
	// LastTransition is the last activation or deactivation of one of this account's workflows. It is written here first,
	// and then to the workflow's record. After a crash between the two writes, the next transition does the second one
	// first. Number 0: there was none.
	LastTransition Transition `audit:"-"`

	unknown unknown `audit:"-"`
}

// Transition is one activation or deactivation of a workflow.
type Transition struct {
	Number     int64 // counts the account's transitions from 1; a workflow's record holds the number of its last one
	WorkflowID string
	Active     bool
	At         time.Time
	By         Actor // who asked for it; zero in old records

	unknown unknown
}

// Actor is who makes a change.
type Actor struct {
	Kind string `json:"kind"` // admin-token, key, user or system
	ID   string `json:"id,omitempty"`
	Name string `json:"name,omitempty"`
}

// Workflow is a workflow.
type Workflow struct {
	ID          string    `audit:"-"`
	AccountID   string    `audit:"accountId"`
	Name        string    `audit:"name"`
	Queue       string    `audit:"queue"` // the runners' queue
	Active      bool      `audit:"active"`
	ActivatedAt time.Time `audit:"-"` // when it was last activated; zero while it is inactive
	// Transition is the number of the account's transition that last switched it, or that the account had reached
	// when the workflow was created. It orders the active ones: the lowest came first.
	Transition int64     `audit:"-"`
	RateLimit  RateLimit `audit:"rateLimit"` // zero: the plan's
	Triggers   []Trigger `audit:"triggers"`  // its webhook trigger nodes, in the operator's order
	CreatedAt  time.Time `audit:"-"`
	UpdatedAt  time.Time `audit:"-"`

	unknown unknown `audit:"-"`
}

// Trigger is a webhook trigger node of a workflow.
type Trigger struct {
	NodeID string      `audit:"-"`
	Name   string      `audit:"name"`
	Tokens []NodeToken `audit:"tokens,hidden"` // that open it, the newest first
	Sender *Sender     `audit:"sender"`        // who calls it; nil: only the token is known
	Filter string      `audit:"filter"`        // which requests start an execution, as compact JSON; empty: every one

	unknown unknown `audit:"-"`
}

// NodeToken is what an ingress knows of a token of a node.
type NodeToken struct {
	Hash      TokenHash
	ExpiresAt int64 // Unix nanoseconds; 0: never
}

// Works says whether the token has not expired.
func (t NodeToken) Works(now time.Time) bool { return t.ExpiresAt == 0 || t.ExpiresAt > now.UnixNano() }

// Expiry is when the token expires; zero: never.
func (t NodeToken) Expiry() time.Time {
	if t.ExpiresAt == 0 {
		return time.Time{}
	}
	return time.Unix(0, t.ExpiresAt).UTC()
}

// Sender configures how a trigger node verifies its requests. Package sender does it: see OpenSender.
type Sender struct {
	Preset  string         `audit:"preset"`
	Secrets []SenderSecret `audit:"secrets,hidden"` // the newest first; expired ones may still be there
	// Settings are the settings that are not secret, by the preset's names; SealedSettings the secret ones, each
	// sealed as AboutSetting.
	Settings       map[string]string `audit:"settings,hidden"`
	SealedSettings map[string][]byte `audit:"sealedSettings,hidden"`

	unknown unknown `audit:"-"`
}

// Sealed returns everything in the record that is sealed.
func (w *Workflow) Sealed() (boxes [][]byte) {
	for _, node := range w.Triggers {
		if node.Sender == nil {
			continue
		}
		for _, secret := range node.Sender.Secrets {
			if len(secret.Sealed) > 0 { // else it is a public key
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
	ID        string // identifies it where its text must not appear
	Sealed    []byte // its text, sealed as AboutSecret; empty: it is a public key
	PublicKey string
	Last4     string // the last characters of the text, for people; empty when it is short
	SetAt     time.Time
	ExpiresAt time.Time // zero: never
	Unseen    bool      // the provider sent it, and it was not shown to an operator yet: that happens once

	unknown unknown
}

// Key is a key of the operators' API.
type Key struct {
	ID        string            `audit:"-"` // key_ and random characters of base64url
	Name      string            `audit:"name"`
	Role      string            `audit:"role"`      // viewer, editor or admin
	AccountID string            `audit:"accountId"` // the only account that it has access to; empty: all of them
	Hash      [sha256.Size]byte `audit:"-"`         // of its text
	CreatedAt time.Time         `audit:"-"`
	ExpiresAt time.Time         `audit:"expiresAt"` // zero: never

	unknown unknown `audit:"-"`
}

// Installation says whose registry this is: the record under InstallationKey. While there is none, or with Restoring, no
// process answers from the registry.
type Installation struct {
	ID string // a random UUID, which the database has, too
	// Restoring is set while a backup is restored.
	Restoring bool
	// Stamp is a random UUID for each time that the record was written. A process that has seen the registry go back to an
	// earlier state relies on it again when the stamp has changed: see package agree.
	Stamp string
	// Life is a random UUID for each time that the registry was restored from the database's copy.
	Life string

	unknown unknown
}

// Queue holds the settings of a queue. Its runners read the record, too: see stream.ReadQueueSettings.
type Queue struct {
	Name string `audit:"-"`
	// PausedSince is when the queue was paused; zero: it is not paused.
	PausedSince time.Time `audit:"pausedSince"`
	// PausedUntil is when the pause ends by itself; zero: it does not.
	PausedUntil time.Time    `audit:"pausedUntil"`
	Groups      []QueueGroup `audit:"groups"` // by name

	unknown unknown `audit:"-"`
}

// QueueGroup holds the settings of a group of runners.
type QueueGroup struct {
	Group       string `audit:"-"`
	MaxInFlight int64  `audit:"maxInFlight"` // 0: as many as its members ask for

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
	return &own
}

// TriggerSecrets are the secrets of a trigger node: the record in SecretsBucket, which an ingress may not read.
type TriggerSecrets struct {
	Tokens        []Token // the workflow's record says which of them are valid
	SamplePayload []byte  // one JSON text; nil: none is configured
	// Sealed replaces the fields above by their encryption, sealed as AboutTrigger. Empty: they are in clear.
	Sealed []byte

	unknown unknown
}

// Token is a token in clear.
type Token struct {
	Text      string
	CreatedAt time.Time

	unknown unknown
}

// unknown holds the fields of a record that only a later version knows. They survive a change by this version.
type unknown []byte

// Clone returns a copy that shares nothing that may be changed.
func (w *Workflow) Clone() *Workflow {
	own := *w
	own.Triggers = slices.Clone(w.Triggers)
	for i := range own.Triggers {
		own.Triggers[i].Tokens = slices.Clone(own.Triggers[i].Tokens)
		own.Triggers[i].Sender = own.Triggers[i].Sender.Clone()
	}
	return &own
}

// Trigger returns a node of the workflow; nil: it has none of this ID. The workflow may be nil.
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

// Clone returns a copy that shares nothing that may be changed; of nil, nil.
func (s *Sender) Clone() *Sender {
	if s == nil {
		return nil
	}
	own := *s
	own.Secrets, own.Settings, own.SealedSettings = slices.Clone(s.Secrets), maps.Clone(s.Settings), maps.Clone(s.SealedSettings)
	return &own
}

// Live are the secrets that have not ended; of nil, none.
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

// Record is a record of the registry: *Account, *Workflow, *Key, *Installation, Plans or *TriggerSecrets.
type Record interface {
	// Encode returns the stored form of the record. Equal records have equal encodings.
	Encode() ([]byte, error)
}

// Equal says whether two records are the same.
func Equal(a, b Record) bool {
	one, err := a.Encode()
	if err != nil {
		return false
	}
	other, err := b.Encode()
	return err == nil && bytes.Equal(one, other)
}
