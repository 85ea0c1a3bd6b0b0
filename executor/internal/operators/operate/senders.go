package operate

import (
	"context"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/sender"
)

// MaxSecretsPerSender is the maximum number of valid secrets of one sender.
const MaxSecretsPerSender = sender.MaxSecrets

const presetsCursorKind = "senders"

// SenderPresets lists the presets in the order in which they are defined. Every account may use all
// of them. If accountID is not empty, but the account does not exist or the caller has no access to
// it, the list is empty.
func (s *Service) SenderPresets(
	ctx context.Context, caller Caller, accountID string, page PageOptions,
) (api.List[api.SenderPreset], error) {
	return runRead(ctx, s, caller, newAccessRule("SenderPresets", accessUnrestricted),
		func(context.Context) (api.List[api.SenderPreset], error) {
			presets := sender.Presets()
			if accountID != "" {
				_, ok := s.config.RegistryIndex.Account(accountID)
				if !ok || !caller.canAccessAccount(accountID) {
					presets = nil
				}
			}
			return newPageOfCatalog(presetsCursorKind, presets, page, apiPreset,
				func(p sender.Preset) string { return p.ID })
		})
}

func apiPreset(p sender.Preset) api.SenderPreset {
	wire := api.SenderPreset{
		ID:         p.ID,
		Aliases:    p.Aliases,
		Title:      p.Title,
		Docs:       p.DocsURL,
		Verifies:   p.Verifies,
		Secret:     (*api.PresetSecret)(p.Secret),
		Settings:   []api.PresetSetting{},
		Setup:      emptyIfNil(p.SetupSteps),
		DeliveryID: emptyIfNil(p.DeliveryIDSources),
		Handshakes: emptyIfNil(p.Handshakes),
		Notes:      emptyIfNil(p.Notes),
		NeedsURL:   p.NeedsPublicURL,
	}
	for _, setting := range p.Settings {
		wire.Settings = append(wire.Settings, api.PresetSetting(setting))
	}
	return wire
}

func emptyIfNil(texts []string) []string {
	if texts == nil {
		return []string{}
	}
	return texts
}

// Sender returns a node's sender. If the caller has at least the role editor, the result includes
// the secrets that the provider has sent and that nobody has seen yet, and Sender marks them as
// seen.
func (s *Service) Sender(
	ctx context.Context, caller Caller, workflowID, nodeID string,
) (api.Sender, error) {
	return runRead(ctx, s, caller, newAccessRule("Sender", accessToWorkflow(workflowID)),
		func(ctx context.Context) (none api.Sender, err error) {
			info, err := s.config.Editor.Sender(ctx, workflowID, nodeID)
			if err != nil {
				return none, err
			}
			if info == nil {
				return none, senderNotFoundError(nodeID)
			}
			wire, err := s.loadAPISender(ctx, info)
			if err != nil {
				return none, err
			}
			if !caller.Role.Includes(RoleEditor) {
				redactSecrets(&wire)
				return wire, nil
			}
			return wire, s.revealCapturedSecrets(ctx, caller, info, &wire)
		})
}

func senderNotFoundError(nodeID string) error {
	return &Error{
		Code:   api.CodeNotFound,
		Detail: "Trigger node " + nodeID + " has no sender: its token alone opens it.",
	}
}

// revealCapturedSecrets sets the text of each captured secret in wire that nobody has seen yet, and
// marks these secrets as seen. A captured secret is one that the provider has sent.
func (s *Service) revealCapturedSecrets(
	ctx context.Context, caller Caller, info *edit.SenderInfo, wire *api.Sender,
) error {
	for i := range info.Secrets {
		if !info.Secrets[i].NotYetRevealed {
			continue
		}
		// Marking the secrets as seen is a change, which a client that disconnects must not
		// interrupt.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.config.ChangeTimeout)
		defer cancel()
		// The audit log records which caller has seen the secrets.
		texts, err := s.config.Editor.RevealCapturedSecrets(withActor(ctx, caller),
			info.Workflow.ID, info.NodeID)
		if err != nil {
			return err
		}
		for i := range wire.Secrets {
			wire.Secrets[i].Captured = texts[wire.Secrets[i].ID]
		}
		return nil
	}
	return nil
}

// redactSecrets removes the last characters of each secret, which only editors may see.
func redactSecrets(s *api.Sender) {
	for i := range s.Secrets {
		s.Secrets[i].Last4 = ""
	}
}

// PutSender sets or replaces a node's sender. If the preset changes, PutSender deletes the node's
// store.SenderActivity, because it describes the requests of the previous sender.
func (s *Service) PutSender(
	ctx context.Context, caller Caller, workflowID, nodeID string, put api.PutSender,
) (PutResult[api.Sender], error) {
	return runChange(ctx, s, caller, newAccessRule("PutSender", accessToWorkflow(workflowID)),
		s.config.ChangeTimeout,
		func(ctx context.Context) (none PutResult[api.Sender], err error) {
			info, created, err := s.config.Editor.PutSender(ctx, workflowID, nodeID,
				edit.SenderSpec{
					Preset:   put.Preset,
					Secrets:  put.Secrets,
					Settings: put.Settings,
				})
			if err != nil {
				return none, err
			}
			if info.ReplacedPreset != info.Preset {
				if err := s.config.Store.ForgetSender(ctx, workflowID, nodeID); err != nil {
					return none, err
				}
			}
			wire, err := s.loadAPISender(ctx, info)
			return PutResult[api.Sender]{Value: wire, Created: created}, err
		})
}

// WithSenderCondition returns a context for a conditional PutSender. PutSender calls check with the
// existing sender, without its secrets, or with nil if there is none. If check returns an error,
// PutSender fails with that error. check may be called more than once.
func WithSenderCondition(ctx context.Context, check func(*api.PutSender) error) context.Context {
	return edit.WithSenderCondition(ctx, func(s *registry.Sender) error {
		if s == nil {
			return check(nil)
		}
		return check(&api.PutSender{Preset: s.Preset, Settings: s.Settings})
	})
}

// RemoveSender removes a node's sender, and the node's store.SenderActivity, which describes the
// sender's requests. The node keeps its token.
func (s *Service) RemoveSender(
	ctx context.Context, caller Caller, workflowID, nodeID string,
) error {
	return s.runChangeWithoutResult(ctx, caller,
		newAccessRule("RemoveSender", accessToWorkflow(workflowID)), s.config.ChangeTimeout,
		func(ctx context.Context) error {
			if err := s.config.Editor.RemoveSender(ctx, workflowID, nodeID); err != nil {
				return err
			}
			return s.config.Store.ForgetSender(ctx, workflowID, nodeID)
		})
}

// AddSenderSecret adds a secret to a node's sender. If add.EndOthersAfterSeconds is not nil, the
// other secrets become invalid after that time; otherwise, nothing changes for them.
func (s *Service) AddSenderSecret(
	ctx context.Context, caller Caller, workflowID, nodeID string, add api.AddSenderSecret,
) (api.Sender, error) {
	return runChange(ctx, s, caller, newAccessRule("AddSenderSecret", accessToWorkflow(workflowID)),
		s.config.ChangeTimeout,
		func(ctx context.Context) (none api.Sender, err error) {
			var endOthers *time.Duration
			if add.EndOthersAfterSeconds != nil {
				after := time.Duration(*add.EndOthersAfterSeconds) * time.Second
				endOthers = &after
			}
			info, err := s.config.Editor.AddSenderSecret(ctx, workflowID, nodeID, add.Secret,
				endOthers)
			if err != nil {
				return none, err
			}
			return s.loadAPISender(ctx, info)
		})
}

// RemoveSenderSecret removes one secret of a node's sender, so that ingresses no longer accept
// requests signed with it.
func (s *Service) RemoveSenderSecret(
	ctx context.Context, caller Caller, workflowID, nodeID, secretID string,
) error {
	return s.runChangeWithoutResult(ctx, caller,
		newAccessRule("RemoveSenderSecret", accessToWorkflow(workflowID)), s.config.ChangeTimeout,
		func(ctx context.Context) error {
			return s.config.Editor.RemoveSenderSecret(ctx, workflowID, nodeID, secretID)
		})
}

// loadAPISender converts a sender to the API's form. It reads the times of the sender's last
// requests from the database.
func (s *Service) loadAPISender(ctx context.Context, info *edit.SenderInfo) (api.Sender, error) {
	seen, err := s.config.Store.SenderActivity(ctx, info.Workflow.ID, info.NodeID)
	return apiSender(info, seen), err
}

func apiSender(info *edit.SenderInfo, seen store.SenderActivity) api.Sender {
	wire := api.Sender{
		Preset:              info.Preset,
		Secrets:             make([]api.SenderSecret, len(info.Secrets)),
		Settings:            info.Settings,
		LastVerifiedAt:      seen.VerifiedAt,
		LastHandshakeAt:     seen.HandshakeAt,
		Deliveries:          seen.Deliveries,
		DeliveriesWithoutID: seen.WithoutID,
	}
	if wire.Settings == nil {
		wire.Settings = map[string]string{}
	}
	if !seen.RefusedAt.IsZero() {
		wire.LastRefusal = &api.SenderRefusal{
			At:     seen.RefusedAt,
			Code:   seen.RefusedCode,
			Reason: seen.RefusedReason,
			Count:  seen.Refused,
		}
	}
	for i, secret := range info.Secrets {
		wire.Secrets[i] = api.SenderSecret{
			ID:        secret.ID,
			Last4:     secret.Last4,
			SetAt:     secret.SetAt,
			ExpiresAt: secret.ExpiresAt,
			PublicKey: secret.PublicKey,
		}
	}
	return wire
}
