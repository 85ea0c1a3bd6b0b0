package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/webhook"
)

// MaxTokensPerNode is the maximum number of valid tokens of one trigger node.
const MaxTokensPerNode = edit.MaxTokensPerNode

// ContainsToken reports whether a text contains a webhook token or a key.
func ContainsToken(text string) bool {
	return strings.Contains(text, webhook.TokenPrefix) || strings.Contains(text, APIKeyPrefix)
}

// TriggerNode returns a trigger node with its URL and its tokens in clear text. For viewers, it
// omits the URL, the tokens, and the last characters of the sender's secrets.
func (s *Service) TriggerNode(
	ctx context.Context, caller Caller, workflowID, nodeID string,
) (api.Trigger, error) {
	return runRead(ctx, s, caller, newAccessRule("TriggerNode", accessToWorkflow(workflowID)),
		func(ctx context.Context) (api.Trigger, error) {
			trigger, err := s.trigger(ctx, workflowID, nodeID)
			if !caller.Role.Includes(RoleEditor) {
				redactForViewers(&trigger)
			}
			return trigger, err
		})
}

// redactForViewers removes everything that only editors may see: the tokens, the URL, which
// contains one of them, and the last characters of the sender's secrets.
func redactForViewers(trigger *api.Trigger) {
	trigger.URL, trigger.Token = "", ""
	for i := range trigger.Tokens {
		trigger.Tokens[i].Token = ""
	}
	if trigger.Sender != nil {
		redactSecrets(trigger.Sender)
	}
}

func (s *Service) trigger(
	ctx context.Context, workflowID, nodeID string,
) (none api.Trigger, err error) {
	info, err := s.config.Editor.Trigger(ctx, workflowID, nodeID)
	if err != nil {
		return none, err
	}
	seen, err := s.activityOf(ctx, info)
	if err != nil {
		return none, err
	}
	return s.apiTrigger(info, seen), nil
}

// PatchTrigger changes the settings of a trigger node. patch modifies the settings that an operator
// can change, and may be called more than once. The settings do not contain the existing sample
// payload. If patch leaves SamplePayload nil, the payload does not change; JSON null deletes it.
func (s *Service) PatchTrigger(
	ctx context.Context, caller Caller, workflowID, nodeID string,
	patch func(*api.TriggerSettings) error,
) (api.Trigger, error) {
	return runChange(ctx, s, caller, newAccessRule("PatchTrigger", accessToWorkflow(workflowID)),
		s.config.ChangeTimeout,
		func(ctx context.Context) (none api.Trigger, err error) {
			_, err = s.changeWorkflow(ctx, workflowID,
				func(spec *edit.WorkflowSpec) error {
					spec.OnlyInAccount = caller.AccountID
					i := slices.IndexFunc(spec.Triggers, func(t edit.TriggerSpec) bool {
						return t.NodeID == nodeID
					})
					if i < 0 {
						return &edit.NotFoundError{
							Item: fmt.Sprintf("trigger node %q of workflow %q", nodeID, workflowID),
						}
					}
					node := &spec.Triggers[i]
					settings := apiTriggerSettings(node)
					if err := patch(&settings); err != nil {
						return err
					}
					setTriggerSettings(node, settings)
					return nil
				})
			if err != nil {
				return none, err
			}
			return s.trigger(ctx, workflowID, nodeID)
		})
}

// apiTriggerSettings converts the settings of a trigger node to the API's form, without the sample
// payload.
func apiTriggerSettings(node *edit.TriggerSpec) api.TriggerSettings {
	return api.TriggerSettings{
		Name:     node.Name,
		Filter:   node.Filter,
		OrderKey: node.OrderKey,
		Answer:   apiAnswer(node.SyncResponse),
	}
}

// setTriggerSettings copies the API's settings to a trigger node. A nil SamplePayload leaves the
// node's sample payload unchanged; JSON null removes it.
func setTriggerSettings(node *edit.TriggerSpec, settings api.TriggerSettings) {
	node.Name, node.Filter, node.OrderKey, node.SyncResponse = settings.Name, settings.Filter,
		settings.OrderKey, registryAnswer(settings.Answer)
	node.RemoveSample = string(settings.SamplePayload) == "null"
	if !node.RemoveSample {
		node.SamplePayload = settings.SamplePayload
	}
}

// MaxSamplePayloadBytes is the maximum size of a sample payload in bytes.
const MaxSamplePayloadBytes = edit.MaxSamplePayloadBytes

// WithSampleCondition returns a context for a conditional SetSamplePayload, which calls check with
// the existing sample payload, or with nil if there is none. If check returns an error, the change
// fails with that error: see edit.WithSampleCondition.
func WithSampleCondition(ctx context.Context, check func(sample []byte) error) context.Context {
	return edit.WithSampleCondition(ctx, check)
}

// SetSamplePayload sets a node's sample payload, which must be one JSON text.
func (s *Service) SetSamplePayload(
	ctx context.Context, caller Caller, workflowID, nodeID string, sample []byte,
) (api.Trigger, error) {
	return runChange(ctx, s, caller,
		newAccessRule("SetSamplePayload", accessToWorkflow(workflowID)), s.config.ChangeTimeout,
		func(ctx context.Context) (none api.Trigger, err error) {
			if err := s.config.Editor.SetSamplePayload(ctx, workflowID, nodeID,
				sample); err != nil {
				return none, err
			}
			return s.trigger(ctx, workflowID, nodeID)
		})
}

// RotateToken gives a node a new token. The old token stays valid for keepOld. Because each call
// creates another token, an error tells the caller whether it is safe to repeat the call.
func (s *Service) RotateToken(
	ctx context.Context, caller Caller, workflowID, nodeID string, keepOld time.Duration,
) (api.Trigger, error) {
	return runChange(ctx, s, caller, newAccessRule("RotateToken", accessToWorkflow(workflowID)),
		s.config.ChangeTimeout,
		func(ctx context.Context) (none api.Trigger, err error) {
			// First read everything else that the response needs: if reading failed later, the new
			// token would be lost.
			before, err := s.config.Editor.Trigger(ctx, workflowID, nodeID)
			if err != nil {
				return none, err
			}
			seen, err := s.activityOf(ctx, before)
			if err != nil {
				return none, err
			}
			if err := s.config.Editor.RotateToken(ctx, workflowID, nodeID, keepOld); err != nil {
				return none, s.toRotationError(ctx, err)
			}
			info, err := s.config.Editor.Trigger(ctx, workflowID, nodeID)
			if err != nil {
				return none, s.toRotationError(ctx, err)
			}
			return s.apiTrigger(info, seen), nil
		})
}

// toRotationError converts the error of a failed token rotation. It sets MustNotRepeat if a
// repeated call could create another token.
func (s *Service) toRotationError(ctx context.Context, err error) error {
	failed := s.toError(ctx, err)
	const unknown = "NATS cannot be reached now. The new token may or may not be stored: look at " +
		"the trigger node before you rotate again, which would make another token."
	if _, ok := errors.AsType[*edit.OutcomeUnknownError](err); ok {
		failed.MustNotRepeat, failed.Detail = true, unknown
		return failed
	}
	switch failed.Code {
	case api.CodeNotConfirmed:
		failed.MustNotRepeat, failed.Detail = true,
			"The new token is stored, but not every process has confirmed it yet. Do not repeat "+
				"the rotation, which would make another token: look at the trigger node to see it."
	case api.CodeUnavailable:
		failed.MustNotRepeat, failed.Detail = true, unknown
	}
	return failed
}

// triggerActivity holds what the database has recorded about the requests to a trigger node.
type triggerActivity struct {
	tokensLastUsed map[string]time.Time // when each token was last used, by ID
	senderActivity store.SenderActivity

	filteredRequests store.FilteredSummary
}

func (s *Service) activityOf(
	ctx context.Context,
	info *edit.TriggerInfo,
) (observed triggerActivity, err error) {
	ids := make([]string, len(info.Tokens))
	for i, t := range info.Tokens {
		ids[i] = t.ID
	}
	if observed.tokensLastUsed, err = s.config.Store.TokensLastUsed(ctx, ids); err == nil &&
		info.Sender != nil {
		observed.senderActivity, err = s.config.Store.SenderActivity(ctx, info.Workflow.ID,
			info.NodeID)
	}
	if err == nil {
		observed.filteredRequests, err = s.config.Store.FilteredSummary(ctx, info.Workflow.ID,
			info.NodeID)
	}
	return observed, err
}

func (s *Service) apiTrigger(info *edit.TriggerInfo, observed triggerActivity) api.Trigger {
	at := s.ingressEndpoint()
	headers, sources := at.deliveryIDSources(info.Sender)
	wire := api.Trigger{
		NodeID: info.NodeID, Name: info.Name,
		Tokens:            make([]api.Token, 0, len(info.Tokens)),
		SamplePayload:     info.SamplePayload,
		DeliveryIDHeaders: headers, DeliveryIDSources: sources,
		MaxBodyBytes: at.maxBodyBytes,
		RateLimit:    apiRateLimit(info.RateLimit),
		Filter:       info.Filter,
		OrderKey:     info.OrderKey,
		Answer:       apiAnswer(info.SyncResponse),
		Filtered:     apiFiltered(info, observed.filteredRequests),
	}
	if info.Sender != nil {
		sender := apiSender(info.Sender, observed.senderActivity)
		wire.Sender = &sender
	}
	for _, t := range info.Tokens {
		token := api.Token{Token: t.Token, CreatedAt: t.CreatedAt, ExpiresAt: t.ExpiresAt}
		if last, was := observed.tokensLastUsed[t.ID]; was {
			token.LastUsedAt = &last
		}
		wire.Tokens = append(wire.Tokens, token)
	}
	if len(wire.Tokens) > 0 {
		wire.Token = wire.Tokens[0].Token
		wire.URL = at.publicURL + "/webhooks/" + info.Workflow.ID + "?token=" + wire.Token
	}
	return wire
}

// apiAnswer converts an answer setting to the API's form. nil becomes nil.
func apiAnswer(a *registry.SyncResponse) *api.Answer {
	if a == nil {
		return nil
	}
	return &api.Answer{WaitSeconds: a.WaitSeconds, Raw: a.Raw}
}

// registryAnswer converts an answer setting to the registry's form. nil becomes nil.
func registryAnswer(a *api.Answer) *registry.SyncResponse {
	if a == nil {
		return nil
	}
	return &registry.SyncResponse{WaitSeconds: a.WaitSeconds, Raw: a.Raw}
}

// apiFiltered converts the number of a node's filtered requests, and the most recent of these
// requests, to the API's form. It returns nil if the node has no filter and has filtered nothing.
func apiFiltered(info *edit.TriggerInfo, f store.FilteredSummary) *api.Filtered {
	if f.Count == 0 && info.Filter == nil {
		return nil
	}
	filtered := &api.Filtered{Count: f.Count, Last: make([]api.FilteredRequest, 0, len(f.Last))}
	for _, r := range f.Last {
		filtered.Last = append(filtered.Last, api.FilteredRequest{
			At:         r.At,
			DeliveryID: r.DeliveryID,
			Place:      r.Place,
		})
	}
	return filtered
}
