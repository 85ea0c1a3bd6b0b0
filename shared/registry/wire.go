package registry

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
)

// The functions in this file encode and decode the stored form of the records in NATS. No other
// file of this package depends on the encoding.

// marshalOptions makes the encoding deterministic: equal messages have equal encodings.
var marshalOptions = proto.MarshalOptions{Deterministic: true}

// Encode implements Record.
func (p Plans) Encode() ([]byte, error) {
	catalog := &hookstartv1.PlanCatalog{}
	for _, plan := range p {
		catalog.Plans = append(catalog.Plans, &hookstartv1.Plan{
			Id:                        plan.ID,
			WebhookTriggers:           plan.WebhookTriggers,
			MaxActiveWebhookWorkflows: limitToWire(plan.MaxActive),
			RateLimit:                 rateLimitToWire(plan.RateLimit),
			BytesPerDay:               limitToWire(plan.BytesPerDay),
		})
	}
	return marshalOptions.Marshal(catalog)
}

// DecodePlans decodes the result of Plans.Encode.
func DecodePlans(data []byte) (Plans, error) {
	var catalog hookstartv1.PlanCatalog
	if err := proto.Unmarshal(data, &catalog); err != nil {
		return nil, fmt.Errorf("the plan catalog: %w", err)
	}
	plans := make(Plans, 0, len(catalog.GetPlans()))
	for _, p := range catalog.GetPlans() {
		plans = append(plans, Plan{
			ID:              p.GetId(),
			WebhookTriggers: p.GetWebhookTriggers(),
			MaxActive:       limitFromWire(p.MaxActiveWebhookWorkflows),
			RateLimit:       rateLimitFromWire(p.GetRateLimit()),
			BytesPerDay:     limitFromWire(p.BytesPerDay),
		})
	}
	return plans, nil
}

// Encode implements Record.
func (a *Account) Encode() ([]byte, error) {
	wire := &hookstartv1.Account{
		Id:        a.ID,
		Name:      a.Name,
		Plan:      a.Plan,
		CreatedAt: timeToWire(a.CreatedAt),
	}
	if last := a.LastTransition; last.Number > 0 {
		wire.LastTransition = &hookstartv1.Transition{
			Number:     last.Number,
			WorkflowId: last.WorkflowID,
			Active:     last.Active,
			At:         timeToWire(last.RequestedAt),
		}
		if actor := last.RequestedBy; actor != (Actor{}) {
			wire.LastTransition.By = &hookstartv1.Actor{
				Kind: actor.Kind,
				Id:   actor.ID,
				Name: actor.Name,
			}
		}
		last.unknown.addTo(wire.LastTransition)
	}
	if e := a.Events; e != nil {
		wire.Events = &hookstartv1.OperatorEvents{
			WorkflowId:         e.WorkflowID,
			Kinds:              e.Kinds,
			SilentAfterSeconds: int64(e.SilentAfter / time.Second),
			Since:              timeToWire(e.SubscribedAt),
		}
		e.unknown.addTo(wire.Events)
	}
	a.unknown.addTo(wire)
	return marshalOptions.Marshal(wire)
}

// DecodeAccount decodes the result of Account.Encode.
func DecodeAccount(data []byte) (*Account, error) {
	var wire hookstartv1.Account
	if err := proto.Unmarshal(data, &wire); err != nil {
		return nil, fmt.Errorf("an account: %w", err)
	}
	a := &Account{
		ID:        wire.GetId(),
		Name:      wire.GetName(),
		Plan:      wire.GetPlan(),
		CreatedAt: timeFromWire(wire.GetCreatedAt()),
		unknown:   unknownFieldsOf(&wire),
	}
	if last := wire.GetLastTransition(); last != nil {
		a.LastTransition = ActivationTransition{
			Number:      last.GetNumber(),
			WorkflowID:  last.GetWorkflowId(),
			Active:      last.GetActive(),
			RequestedAt: timeFromWire(last.GetAt()),
			RequestedBy: Actor{
				Kind: last.GetBy().GetKind(),
				ID:   last.GetBy().GetId(),
				Name: last.GetBy().GetName(),
			},
			unknown: unknownFieldsOf(last),
		}
	}
	if e := wire.GetEvents(); e != nil {
		a.Events = &EventSubscription{
			WorkflowID:   e.GetWorkflowId(),
			Kinds:        e.GetKinds(),
			SilentAfter:  time.Duration(e.GetSilentAfterSeconds()) * time.Second,
			SubscribedAt: timeFromWire(e.GetSince()),
			unknown:      unknownFieldsOf(e),
		}
	}
	return a, nil
}

// Encode implements Record.
func (w *Workflow) Encode() ([]byte, error) {
	wire := &hookstartv1.Workflow{
		Id:          w.ID,
		AccountId:   w.AccountID,
		Name:        w.Name,
		Queue:       w.Queue,
		Active:      w.Active,
		ActivatedAt: timeToWire(w.ActivatedAt),
		Transition:  w.Transition,
		RateLimit:   rateLimitToWire(w.RateLimit),
		CreatedAt:   timeToWire(w.CreatedAt),
		UpdatedAt:   timeToWire(w.UpdatedAt),
		Closed:      w.IntakeClosed,
		MovedAt:     timeToWire(w.MovedAt),
	}
	for _, t := range w.Triggers {
		node := &hookstartv1.TriggerNode{
			NodeId:   t.NodeID,
			Name:     t.Name,
			Sender:   t.Sender.toWire(),
			Filter:   t.Filter,
			OrderKey: t.OrderKey,
			Answer:   t.SyncResponse.toWire(),
		}
		for _, token := range t.Tokens {
			node.Tokens = append(node.Tokens, &hookstartv1.TokenHash{
				Sha256:    token.Hash[:],
				ExpiresAt: timeToWire(token.Expiry()),
			})
		}
		t.unknown.addTo(node)
		wire.Triggers = append(wire.Triggers, node)
	}
	w.unknown.addTo(wire)
	return marshalOptions.Marshal(wire)
}

// DecodeWorkflow decodes the result of Workflow.Encode.
func DecodeWorkflow(data []byte) (*Workflow, error) {
	var wire hookstartv1.Workflow
	if err := proto.Unmarshal(data, &wire); err != nil {
		return nil, fmt.Errorf("a workflow: %w", err)
	}
	w := &Workflow{
		ID:           wire.GetId(),
		AccountID:    wire.GetAccountId(),
		Name:         wire.GetName(),
		Queue:        wire.GetQueue(),
		Active:       wire.GetActive(),
		ActivatedAt:  timeFromWire(wire.GetActivatedAt()),
		Transition:   wire.GetTransition(),
		RateLimit:    rateLimitFromWire(wire.GetRateLimit()),
		Triggers:     make([]Trigger, 0, len(wire.GetTriggers())),
		CreatedAt:    timeFromWire(wire.GetCreatedAt()),
		UpdatedAt:    timeFromWire(wire.GetUpdatedAt()),
		unknown:      unknownFieldsOf(&wire),
		IntakeClosed: wire.GetClosed(),
		MovedAt:      timeFromWire(wire.GetMovedAt()),
	}
	for _, node := range wire.GetTriggers() {
		t := Trigger{
			NodeID:       node.GetNodeId(),
			Name:         node.GetName(),
			Tokens:       make([]HashedToken, 0, len(node.GetTokens())),
			Sender:       senderFromWire(node.GetSender()),
			Filter:       node.GetFilter(),
			OrderKey:     node.GetOrderKey(),
			SyncResponse: syncResponseFromWire(node.GetAnswer()),
			unknown:      unknownFieldsOf(node),
		}
		for _, token := range node.GetTokens() {
			if len(token.GetSha256()) != len(TokenHash{}) {
				continue // this is not a hash, so no token can match it
			}
			hash := HashedToken{Hash: TokenHash(token.GetSha256())}
			if token.GetExpiresAt() != nil {
				hash.ExpiresAt = token.GetExpiresAt().AsTime().UnixNano()
			}
			t.Tokens = append(t.Tokens, hash)
		}
		w.Triggers = append(w.Triggers, t)
	}
	return w, nil
}

// Equal reports whether two senders have the same stored form. Either may be nil.
func (s *Sender) Equal(other *Sender) bool { return proto.Equal(s.toWire(), other.toWire()) }

func (s *Sender) toWire() *hookstartv1.Sender {
	if s == nil {
		return nil
	}
	wire := &hookstartv1.Sender{
		Preset:         s.Preset,
		Settings:       s.Settings,
		SealedSettings: s.SealedSettings,
	}
	for _, secret := range s.Secrets {
		encoded := &hookstartv1.SenderSecret{
			Id:        secret.ID,
			Sealed:    secret.SealedText,
			PublicKey: secret.PublicKey,
			Last4:     secret.Last4,
			SetAt:     timeToWire(secret.SetAt),
			ExpiresAt: timeToWire(secret.ExpiresAt),
			Unseen:    secret.NotYetRevealed,
		}
		secret.unknown.addTo(encoded)
		wire.Secrets = append(wire.Secrets, encoded)
	}
	s.unknown.addTo(wire)
	return wire
}

func senderFromWire(wire *hookstartv1.Sender) *Sender {
	if wire == nil {
		return nil
	}
	s := &Sender{
		Preset:         wire.GetPreset(),
		Settings:       wire.GetSettings(),
		SealedSettings: wire.GetSealedSettings(),
		unknown:        unknownFieldsOf(wire),
	}
	for _, secret := range wire.GetSecrets() {
		s.Secrets = append(s.Secrets, SenderSecret{
			ID:             secret.GetId(),
			SealedText:     secret.GetSealed(),
			PublicKey:      secret.GetPublicKey(),
			Last4:          secret.GetLast4(),
			SetAt:          timeFromWire(secret.GetSetAt()),
			ExpiresAt:      timeFromWire(secret.GetExpiresAt()),
			NotYetRevealed: secret.GetUnseen(),
			unknown:        unknownFieldsOf(secret),
		})
	}
	return s
}

func (a *SyncResponse) toWire() *hookstartv1.Answer {
	if a == nil {
		return nil
	}
	wire := &hookstartv1.Answer{WaitSeconds: a.WaitSeconds, Raw: a.Raw}
	a.unknown.addTo(wire)
	return wire
}

func syncResponseFromWire(wire *hookstartv1.Answer) *SyncResponse {
	if wire == nil {
		return nil
	}
	return &SyncResponse{
		WaitSeconds: wire.GetWaitSeconds(), Raw: wire.GetRaw(), unknown: unknownFieldsOf(wire),
	}
}

// Encode implements Record.
func (k *APIKey) Encode() ([]byte, error) {
	wire := &hookstartv1.Key{
		Id:        k.ID,
		Name:      k.Name,
		Role:      k.Role,
		AccountId: k.AccountID,
		Sha256:    k.Hash[:],
		CreatedAt: timeToWire(k.CreatedAt),
		ExpiresAt: timeToWire(k.ExpiresAt),
	}
	k.unknown.addTo(wire)
	return marshalOptions.Marshal(wire)
}

// DecodeAPIKey decodes the result of APIKey.Encode.
func DecodeAPIKey(data []byte) (*APIKey, error) {
	var wire hookstartv1.Key
	if err := proto.Unmarshal(data, &wire); err != nil {
		return nil, fmt.Errorf("a key: %w", err)
	}
	k := &APIKey{
		ID:        wire.GetId(),
		Name:      wire.GetName(),
		Role:      wire.GetRole(),
		AccountID: wire.GetAccountId(),
		CreatedAt: timeFromWire(wire.GetCreatedAt()),
		ExpiresAt: timeFromWire(wire.GetExpiresAt()),
		unknown:   unknownFieldsOf(&wire),
	}
	copy(k.Hash[:], wire.GetSha256())
	return k, nil
}

// Encode implements Record.
func (i *Installation) Encode() ([]byte, error) {
	wire := &hookstartv1.Installation{
		Id:        i.ID,
		Restoring: i.Restoring,
		Stamp:     i.WriteID,
		Life:      i.RestoreID,
	}
	i.unknown.addTo(wire)
	return marshalOptions.Marshal(wire)
}

// DecodeInstallation decodes the result of Installation.Encode.
func DecodeInstallation(data []byte) (*Installation, error) {
	var wire hookstartv1.Installation
	if err := proto.Unmarshal(data, &wire); err != nil {
		return nil, fmt.Errorf("the installation's identity: %w", err)
	}
	return &Installation{
		ID:        wire.GetId(),
		Restoring: wire.GetRestoring(),
		WriteID:   wire.GetStamp(),
		RestoreID: wire.GetLife(),
		unknown:   unknownFieldsOf(&wire),
	}, nil
}

// Encode implements Record.
func (q *Queue) Encode() ([]byte, error) {
	wire := &hookstartv1.QueueSettings{
		Queue:       q.Name,
		PausedSince: timeToWire(q.PausedSince),
		PausedUntil: timeToWire(q.PausedUntil),
		Lanes:       q.LaneCount,
	}
	for _, g := range q.Groups {
		group := &hookstartv1.QueueGroupSettings{Group: g.Group, MaxInFlight: g.MaxInFlight}
		g.unknown.addTo(group)
		wire.Groups = append(wire.Groups, group)
	}
	if s := q.Stream; s != nil {
		wire.Stream = &hookstartv1.QueueStream{
			Phase:         hookstartv1.QueueStreamPhase(s.Phase),
			MaxBytes:      s.MaxBytes,
			MaxAgeSeconds: int64(s.MaxAge / time.Second),
			Replicas:      s.Replicas,
			PlacementTags: s.PlacementTags,
		}
		s.unknown.addTo(wire.Stream)
	}
	q.unknown.addTo(wire)
	return marshalOptions.Marshal(wire)
}

// DecodeQueue decodes the result of Queue.Encode.
func DecodeQueue(data []byte) (*Queue, error) {
	var wire hookstartv1.QueueSettings
	if err := proto.Unmarshal(data, &wire); err != nil {
		return nil, fmt.Errorf("the settings of a queue: %w", err)
	}
	q := &Queue{
		Name:        wire.GetQueue(),
		PausedSince: timeFromWire(wire.GetPausedSince()),
		PausedUntil: timeFromWire(wire.GetPausedUntil()),
		LaneCount:   wire.GetLanes(),
		unknown:     unknownFieldsOf(&wire),
	}
	for _, g := range wire.GetGroups() {
		q.Groups = append(q.Groups, QueueGroup{
			Group:       g.GetGroup(),
			MaxInFlight: g.GetMaxInFlight(),
			unknown:     unknownFieldsOf(g),
		})
	}
	if s := wire.GetStream(); s != nil {
		q.Stream = &QueueStream{
			Phase: StreamPhase(s.GetPhase()), MaxBytes: s.GetMaxBytes(),
			MaxAge: time.Duration(s.GetMaxAgeSeconds()) * time.Second, Replicas: s.GetReplicas(),
			PlacementTags: s.GetPlacementTags(), unknown: unknownFieldsOf(s),
		}
	}
	return q, nil
}

// Encode implements Record.
func (s *TriggerSecrets) Encode() ([]byte, error) {
	wire := &hookstartv1.TriggerSecrets{SamplePayload: s.SamplePayload, Sealed: s.SealedContent}
	for _, t := range s.Tokens {
		encoded := &hookstartv1.Token{Token: t.Text, CreatedAt: timeToWire(t.CreatedAt)}
		t.unknown.addTo(encoded)
		wire.Tokens = append(wire.Tokens, encoded)
	}
	s.unknown.addTo(wire)
	return marshalOptions.Marshal(wire)
}

// DecodeTriggerSecrets decodes the result of TriggerSecrets.Encode.
func DecodeTriggerSecrets(data []byte) (*TriggerSecrets, error) {
	var wire hookstartv1.TriggerSecrets
	if err := proto.Unmarshal(data, &wire); err != nil {
		return nil, fmt.Errorf("a trigger node's secrets: %w", err)
	}
	s := &TriggerSecrets{
		SamplePayload: wire.SamplePayload,
		SealedContent: wire.GetSealed(),
		unknown:       unknownFieldsOf(&wire),
	}
	for _, t := range wire.GetTokens() {
		s.Tokens = append(s.Tokens, Token{
			Text:      t.GetToken(),
			CreatedAt: timeFromWire(t.GetCreatedAt()),
			unknown:   unknownFieldsOf(t),
		})
	}
	return s, nil
}

// addTo adds the unknown fields to m, a message that is about to be encoded and stored.
func (u unknownFields) addTo(m proto.Message) {
	if len(u) > 0 {
		m.ProtoReflect().SetUnknown([]byte(u))
	}
}

func unknownFieldsOf(
	m proto.Message,
) unknownFields {
	return unknownFields(m.ProtoReflect().GetUnknown())
}

func timeToWire(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func timeFromWire(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

func rateLimitToWire(l RateLimit) *hookstartv1.RateLimit {
	if l == (RateLimit{}) {
		return nil
	}
	return &hookstartv1.RateLimit{
		Requests:      l.Requests,
		WindowSeconds: int64(l.Window / time.Second),
	}
}

func rateLimitFromWire(l *hookstartv1.RateLimit) RateLimit {
	return RateLimit{
		Requests: l.GetRequests(),
		Window:   time.Duration(l.GetWindowSeconds()) * time.Second,
	}
}

func limitToWire(n int64) *int64 {
	if n == Unlimited {
		return nil
	}
	return &n
}

func limitFromWire(n *int64) int64 {
	if n == nil {
		return Unlimited
	}
	return *n
}
