package registry

import (
	"bytes"
	"crypto/sha256"
	"maps"
	"slices"
	"time"
)

// The records of the registry. Records from a RegistryIndex or a Change are shared and must not be
// modified: modify a Clone. Times are UTC; the zero time means not set. The "audit" tag is for
// package edit. It is the field's name in the audit log, followed by ",hidden" if the log must not
// show the value. Fields tagged "-" are not in the audit log.

// RateLimit limits requests. After a quiet period, a burst of up to Requests requests is admitted
// immediately, and then one request every Window/Requests. The zero value means that no limit is
// set.
type RateLimit struct {
	Requests int64         `audit:"requests"`
	Window   time.Duration `audit:"windowSeconds"` // whole seconds
}

// Plan holds the limits and permissions of all accounts that have the plan.
type Plan struct {
	ID              string
	WebhookTriggers bool      // whether workflows may have webhook triggers
	MaxActive       int64     // maximum number of active webhook workflows, or Unlimited
	RateLimit       RateLimit // rate limit of each workflow without one of its own
	BytesPerDay     int64     // maximum size of an account's request bodies per day, or Unlimited
}

// Unlimited is the value of Plan.MaxActive or Plan.BytesPerDay if there is no limit.
const Unlimited = -1

// Plans is the plan catalog, in the order of the catalog file. It is stored as one record, under
// the key PlansKey.
type Plans []Plan

// Find returns the plan with the given ID, or nil if there is none.
func (p Plans) Find(id string) *Plan {
	for i := range p {
		if p[i].ID == id {
			return &p[i]
		}
	}
	return nil
}

// Account is a customer's account. Its record also serves as the lock for activating and
// deactivating the account's workflows: see LastTransition.
type Account struct {
	ID        string    `audit:"-"`
	Name      string    `audit:"name"`
	Plan      string    `audit:"plan"` // ID of a plan
	CreatedAt time.Time `audit:"-"`
	// LastTransition is the last activation or deactivation of one of the account's workflows. It
	// is written to this record first, and then to the workflow's record. If a crash prevents the
	// second write, another executor makes that write, or the next transition does.
	// LastTransition.Number is 0 if there has been no transition.
	LastTransition ActivationTransition `audit:"-"`
	// Events makes the account's events start a workflow. nil means that they start none. The value
	// is shared and must not be modified.
	Events *EventSubscription `audit:"events"`

	unknown unknownFields `audit:"-"`
}

// ActivationTransition is one activation or deactivation of a workflow.
type ActivationTransition struct {
	// Number counts the account's transitions from 1. Workflow.Transition holds the number of the
	// workflow's last transition.
	Number      int64
	WorkflowID  string
	Active      bool      // true for an activation, false for a deactivation
	RequestedAt time.Time // when it was requested
	RequestedBy Actor     // who requested it

	unknown unknownFields
}

// Actor is the operator or program that makes a change, as shown in the audit log.
type Actor struct {
	Kind string `json:"kind"`           // admin-token, key, user or system
	ID   string `json:"id,omitempty"`   // the ID of the key or of the user; otherwise ""
	Name string `json:"name,omitempty"` // the display name of the key or of the user
}

// Workflow is a workflow that webhooks can start.
type Workflow struct {
	ID          string    `audit:"-"`
	AccountID   string    `audit:"accountId"`
	Name        string    `audit:"name"`
	Queue       string    `audit:"queue"` // the queue whose runners execute it
	Active      bool      `audit:"active"`
	ActivatedAt time.Time `audit:"-"` // when it was last activated; zero while it is inactive
	// Transition orders the active workflows of an account: of two, the one with the lower number
	// was activated first. It is the number, within the account, of the workflow's last activation
	// or deactivation. If there has been none since the workflow was created in the account or
	// moved there, it is the account's latest number at that time.
	Transition int64     `audit:"-"`
	RateLimit  RateLimit `audit:"rateLimit"` // zero means the plan's rate limit
	Triggers   []Trigger `audit:"triggers"`  // webhook trigger nodes, in the operator's order
	CreatedAt  time.Time `audit:"-"`
	UpdatedAt  time.Time `audit:"-"`
	MovedAt    time.Time `audit:"-"` // when it last moved to another account; zero means never
	// IntakeClosed means that ingresses refuse all requests for the workflow, because an executor
	// is copying the workflow's delivery IDs to the stream of another queue. That takes a few
	// seconds at most: see MaxGateClosedTime.
	IntakeClosed bool `audit:"-"`

	unknown unknownFields `audit:"-"`
}

// InAccountSince returns when the workflow was created in its account or last moved there.
func (w *Workflow) InAccountSince() time.Time {
	if w.MovedAt.After(w.CreatedAt) {
		return w.MovedAt
	}
	return w.CreatedAt
}

// Trigger is a webhook trigger node of a workflow.
type Trigger struct {
	NodeID string        `audit:"-"`
	Name   string        `audit:"name"`
	Tokens []HashedToken `audit:"tokens,hidden"` // newest first; any unexpired one is accepted
	// Sender determines how requests are verified. nil means that only the token is checked.
	Sender *Sender `audit:"sender"`
	// Filter selects the requests that start an execution, as compact JSON. "" selects all.
	Filter string `audit:"filter"`
	// SyncResponse makes the response to a request wait until its execution has finished. nil means
	// that the response does not wait.
	SyncResponse *SyncResponse `audit:"answer"`
	// OrderKey identifies where a request contains its order key. "" means that the executions are
	// not ordered.
	OrderKey string `audit:"orderKey"`

	unknown unknownFields `audit:"-"`
}

// SyncResponse makes the response to a request wait until its execution has finished.
type SyncResponse struct {
	WaitSeconds int64 `audit:"waitSeconds"` // maximum wait in seconds
	Raw         bool  `audit:"raw"`         // whether the response body is the execution's output

	unknown unknownFields `audit:"-"`
}

// Clone returns a copy, or nil if a is nil.
func (a *SyncResponse) Clone() *SyncResponse {
	if a == nil {
		return nil
	}
	own := *a
	return &own
}

// HashedToken is the part of a node's token that an ingress may read: the hash of its text and its
// expiry, but not the text itself.
type HashedToken struct {
	Hash      TokenHash // hash of the token's text
	ExpiresAt int64     // Unix nanoseconds; 0 means never
}

// IsValid reports whether the token has not expired at now.
func (t HashedToken) IsValid(now time.Time) bool {
	return t.ExpiresAt == 0 || t.ExpiresAt > now.UnixNano()
}

// Expiry returns when the token expires. The zero time means never.
func (t HashedToken) Expiry() time.Time {
	if t.ExpiresAt == 0 {
		return time.Time{}
	}
	return time.Unix(0, t.ExpiresAt).UTC()
}

// Sender configures how a trigger node verifies its requests. It is the stored form, with encrypted
// secrets; DecryptSender decrypts it into the sender.Config with which package sender verifies.
type Sender struct {
	Preset string `audit:"preset"` // the ID of a preset in package sender's built-in table
	// Secrets holds the secrets, newest first. Expired secrets may still be among them.
	Secrets []SenderSecret `audit:"secrets,hidden"`
	// Settings holds the settings that are not secret, keyed by the preset's setting names.
	// SealedSettings holds the secret settings, each encrypted for SenderSettingSealPurpose.
	Settings       map[string]string `audit:"settings,hidden"`
	SealedSettings map[string][]byte `audit:"sealedSettings,hidden"`

	unknown unknownFields `audit:"-"`
}

// SealedValues returns every encrypted value in the workflow's record: the secrets of its senders
// and their secret settings.
func (w *Workflow) SealedValues() (boxes [][]byte) {
	for _, node := range w.Triggers {
		if node.Sender == nil {
			continue
		}
		for _, secret := range node.Sender.Secrets {
			if len(secret.SealedText) > 0 { // otherwise it is a public key
				boxes = append(boxes, secret.SealedText)
			}
		}
		for _, box := range node.Sender.SealedSettings {
			boxes = append(boxes, box)
		}
	}
	return boxes
}

// SenderSecret is a secret or a public key with which a sender's requests are verified.
type SenderSecret struct {
	ID string // identifies the secret where its text must not appear
	// SealedText is the secret's text, encrypted for SenderSecretSealPurpose. Empty means that
	// PublicKey is set instead.
	SealedText []byte
	PublicKey  string // the text of a public key; "" means that SealedText is set
	Last4      string // the last characters of the text, for display; "" if the text is short
	SetAt      time.Time
	ExpiresAt  time.Time // the zero time means never
	// NotYetRevealed means that the secret was received from the provider and has not been shown to
	// an operator yet. It is shown only once.
	NotYetRevealed bool

	unknown unknownFields
}

// APIKey is a key of the operators' API.
type APIKey struct {
	ID   string `audit:"-"` // key_ followed by random base64url characters
	Name string `audit:"name"`
	Role string `audit:"role"` // viewer, editor or admin
	// AccountID is the only account that the key can access. "" means all accounts.
	AccountID string            `audit:"accountId"`
	Hash      [sha256.Size]byte `audit:"-"` // SHA-256 of the key's text
	CreatedAt time.Time         `audit:"-"`
	ExpiresAt time.Time         `audit:"expiresAt"` // the zero time means never

	unknown unknownFields `audit:"-"`
}

// Installation is the identity of the registry. It is the record under InstallationKey. While there
// is no such record, or while Restoring is true, no process uses the registry.
type Installation struct {
	ID string // a random UUID, which is also in the database
	// Restoring is true while a backup is being restored.
	Restoring bool
	// WriteID is a random UUID that changes each time the record is written. If a process has seen
	// the registry go back to an earlier state, it does not rely on the registry again until the
	// WriteID has changed: see package consistency.
	WriteID string
	// RestoreID is a random UUID that changes each time the registry is restored from the copy in
	// the database.
	RestoreID string

	unknown unknownFields
}

// Queue holds the settings of a queue. The queue's runners also read the record: see
// stream.ReadQueueSettings.
type Queue struct {
	Name string `audit:"-"`
	// PausedSince is when the queue was paused. The zero time means that it is not paused.
	PausedSince time.Time `audit:"pausedSince"`
	// PausedUntil is when the pause ends automatically. The zero time means never.
	PausedUntil time.Time    `audit:"pausedUntil"`
	Groups      []QueueGroup `audit:"groups"` // sorted by name
	// LaneCount is the number of lanes. Every group of runners has a separate consumer for each
	// lane. 0 means that the queue has no lanes because none of its workflows has ever had an order
	// key.
	LaneCount int64 `audit:"-"`
	// Stream is the queue's own stream. nil means that the queue's start messages are in the stream
	// that all queues share.
	Stream *QueueStream `audit:"stream"`

	unknown unknownFields `audit:"-"`
}

// QueueStream holds the phase and the settings of a queue's own stream.
type QueueStream struct {
	Phase    StreamPhase `audit:"-"`        // where start messages are stored now
	MaxBytes int64       `audit:"maxBytes"` // maximum size; 0 means no limit
	// MaxAge is how long the stream keeps a message, in whole seconds. 0 means as long as the
	// shared stream.
	MaxAge   time.Duration `audit:"maxAgeSeconds"`
	Replicas int64         `audit:"replicas"` // 0 means as many as the shared stream
	// PlacementTags are the tags that a server must have to hold the stream. Empty means any
	// server.
	PlacementTags []string `audit:"placementTags"`

	unknown unknownFields `audit:"-"`
}

// StreamPhase identifies where a queue's start messages are stored while the queue moves to its own
// stream or back. The values are those of the enum QueueStreamPhase in proto.
type StreamPhase int32

// The phases, in the order in which a queue goes through them.
const (
	// QueuePhaseMovingToOwn means that start messages are stored in the shared stream, and the
	// delivery IDs are being copied to the queue's own stream.
	QueuePhaseMovingToOwn StreamPhase = iota + 1
	// QueuePhaseClosedMovingToOwn means that no start messages are accepted until the last delivery
	// IDs have been copied to the queue's own stream.
	QueuePhaseClosedMovingToOwn
	// QueuePhaseOwnStream means that start messages are stored in the queue's own stream.
	QueuePhaseOwnStream
	// QueuePhaseMovingToShared means that start messages are stored in the queue's own stream, and
	// the delivery IDs are being copied to the shared stream.
	QueuePhaseMovingToShared
	// QueuePhaseClosedMovingToShared means that no start messages are accepted until the last
	// delivery IDs have been copied to the shared stream.
	QueuePhaseClosedMovingToShared
	// QueuePhaseDrainingOwnStream means that start messages are stored in the shared stream. The
	// queue's own stream is kept until it is empty.
	QueuePhaseDrainingOwnStream
)

// streamPhaseNames are the names of the phases in the operators' API.
var streamPhaseNames = [...]string{
	"", "movingIn", "closedIn", "own", "movingOut", "closedOut", "draining",
}

// String returns the name of the phase in the operators' API, or "" for an unknown phase.
func (p StreamPhase) String() string {
	if p < 0 || int(p) >= len(streamPhaseNames) {
		return ""
	}
	return streamPhaseNames[p]
}

// IsMoving reports whether the queue is moving to its own stream or back.
func (p StreamPhase) IsMoving() bool {
	return p == QueuePhaseMovingToOwn || p == QueuePhaseClosedMovingToOwn ||
		p == QueuePhaseMovingToShared ||
		p == QueuePhaseClosedMovingToShared
}

// StoreTarget returns where an ingress stores the start messages of the queue, or StoreTargetClosed
// while it must not store any. A queue without a record, for which q is nil, uses the shared
// stream.
func (q *Queue) StoreTarget() StoreTarget {
	switch {
	case q == nil || q.Stream == nil:
		return StoreTargetShared
	case q.Stream.Phase == QueuePhaseClosedMovingToOwn ||
		q.Stream.Phase == QueuePhaseClosedMovingToShared:
		return StoreTargetClosed
	case q.Stream.Phase == QueuePhaseOwnStream || q.Stream.Phase == QueuePhaseMovingToShared:
		return StoreTargetOwn
	case q.Stream.Phase == QueuePhaseMovingToOwn || q.Stream.Phase == QueuePhaseDrainingOwnStream ||
		q.Stream.Phase == 0:
		return StoreTargetShared
	}
	return StoreTargetClosed // a phase that only a later version defines
}

// QueueGroup holds a queue's settings for one group of runners.
type QueueGroup struct {
	Group       string `audit:"-"`
	MaxInFlight int64  `audit:"maxInFlight"` // 0 means that the operator has set no limit

	unknown unknownFields `audit:"-"`
}

// IsPaused reports whether the queue is paused at the given time.
func (q *Queue) IsPaused(now time.Time) bool {
	return !q.PausedSince.IsZero() && (q.PausedUntil.IsZero() || now.Before(q.PausedUntil))
}

// HasSettingInForce reports whether an operator's setting is in force at the given time: a pause,
// the queue's own stream, or a limit of a group.
func (q *Queue) HasSettingInForce(now time.Time) bool {
	return q.IsPaused(now) || q.Stream != nil ||
		slices.ContainsFunc(q.Groups, func(g QueueGroup) bool { return g.MaxInFlight > 0 })
}

// Clone returns a copy that may be modified.
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

// TriggerSecrets holds the secrets of a trigger node. It is a record in SecretsBucket, which an
// ingress may not read.
type TriggerSecrets struct {
	Tokens        []Token // the workflow's record holds the hashes of the valid ones
	SamplePayload []byte  // one JSON text; nil means that none is configured
	// SealedContent holds Tokens and SamplePayload, encrypted for TriggerSecretsSealPurpose; these
	// two fields are then empty. If SealedContent is empty, the two fields hold unencrypted values.
	SealedContent []byte

	unknown unknownFields
}

// Token is a token of a trigger node in plain text.
type Token struct {
	Text      string // the token as it appears in a webhook's URL
	CreatedAt time.Time

	unknown unknownFields
}

// unknownFields holds the encoded fields of a record that this version does not know, so that they
// survive when this version changes the record.
type unknownFields []byte

// Clone returns a copy that may be modified without affecting w.
func (w *Workflow) Clone() *Workflow {
	own := *w
	own.Triggers = slices.Clone(w.Triggers)
	for i := range own.Triggers {
		own.Triggers[i].Tokens = slices.Clone(own.Triggers[i].Tokens)
		own.Triggers[i].Sender = own.Triggers[i].Sender.Clone()
		own.Triggers[i].SyncResponse = own.Triggers[i].SyncResponse.Clone()
	}
	return &own
}

// Trigger returns the node with the given ID, or nil if the workflow has none. w may be nil.
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

// Clone returns a copy that may be modified without affecting s. It returns nil if s is nil.
func (s *Sender) Clone() *Sender {
	if s == nil {
		return nil
	}
	own := *s
	own.Secrets, own.Settings, own.SealedSettings = slices.Clone(s.Secrets), maps.Clone(s.Settings),
		maps.Clone(s.SealedSettings)
	return &own
}

// UnexpiredSecrets returns the secrets that have not expired at now. It returns nil if s is nil.
func (s *Sender) UnexpiredSecrets(now time.Time) (live []SenderSecret) {
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

// Record is a record of the registry: *Account, *Workflow, *APIKey, *Installation, *Queue, Plans or
// *TriggerSecrets.
type Record interface {
	// Encode returns the stored form of the record. Equal records have equal encodings.
	Encode() ([]byte, error)
}

// Equal reports whether two records have the same stored form. It returns false if either of them
// cannot be encoded.
func Equal(a, b Record) bool {
	encoded, err := a.Encode()
	if err != nil {
		return false
	}
	other, err := b.Encode()
	return err == nil && bytes.Equal(encoded, other)
}
