package apiserver

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/shared/registry"
)

const triggerPath = "/workflows/{id}/triggers/{nodeId}"

func (s *server) routeTriggers(to huma.API) {
	register(s, to, call{
		method: http.MethodGet, path: triggerPath, id: "get-trigger", tag: tagTriggers,
		summary: "Show a trigger node's settings", description: "With its URL and its tokens in clear.",
		codes: []string{api.CodeNotFound},
	}, s.getTrigger)
	register(s, to, call{
		method: http.MethodPut, path: triggerPath + "/sample-payload", id: "put-sample-payload", tag: tagTriggers,
		summary: "Set the sample payload", description: "The body is the payload: any JSON value, at most 512 KiB. Reruns run on it.",
		codes:   []string{api.CodeNotFound, api.CodeInvalid, api.CodeBodyTooLarge},
		anyBody: true,
	}, s.putSamplePayload)
	register(s, to, call{
		method: http.MethodPost, path: triggerPath + "/rotate-token", id: "rotate-token", tag: tagTriggers,
		summary: "Make a new token",
		description: "The tokens so far work for `keepOldForSeconds` longer, or as long as they would have if that is " +
			"shorter. Without a body they end at once. Each call makes another token: do not repeat it blindly.",
		codes: []string{api.CodeNotFound, api.CodeInvalid, api.CodeTooManyTokens, api.CodeNotConfirmed},
	}, s.rotateToken)
	register(s, to, call{
		method: http.MethodPost, path: triggerPath + "/rerun", id: "rerun-trigger", tag: tagTriggers,
		summary:     "Start an execution on the sample payload",
		description: "Neither the plan nor `active` keeps it from starting: a workflow can be tried before it is activated.",
		codes:       []string{api.CodeNotFound, api.CodeSamplePayloadMissing},
	}, s.rerunTrigger)
}

// TriggerID is the path of a trigger node.
type TriggerID struct {
	WorkflowID
	NodeID string `path:"nodeId" doc:"The trigger node's ID." example:"webhook"`
}

func (s *server) rerunTrigger(ctx context.Context, in *TriggerID) (*startedOutput, error) {
	return started(s.Operate.RerunTrigger(ctx, callerOf(ctx), in.ID, in.NodeID))
}

type triggerOutput struct {
	Body api.Trigger
}

func (s *server) getTrigger(ctx context.Context, in *TriggerID) (*triggerOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	info, err := s.Editor.Trigger(ctx, in.ID, in.NodeID)
	if err != nil {
		return nil, err
	}
	used, err := s.tokensLastUsed(ctx, info)
	if err != nil {
		return nil, err
	}
	return &triggerOutput{s.triggerOnWire(info, used)}, nil
}

func (s *server) putSamplePayload(ctx context.Context, in *struct {
	TriggerID
	RawBody []byte `contentType:"application/json"`
},
) (*triggerOutput, error) {
	changing, cancel := s.changing(ctx)
	defer cancel()
	if err := s.Editor.SetSamplePayload(changing, in.ID, in.NodeID, in.RawBody); err != nil {
		return nil, err
	}
	return s.getTrigger(ctx, &in.TriggerID)
}

func (s *server) rotateToken(ctx context.Context, in *struct {
	TriggerID
	Body *api.RotateToken
},
) (*triggerOutput, error) {
	ctx, cancel := s.changing(ctx)
	defer cancel()
	// What the answer needs besides the new token is fetched first: if that fails, no token
	// was made that nobody hears of.
	before, err := s.Editor.Trigger(ctx, in.ID, in.NodeID)
	if err != nil {
		return nil, err
	}
	used, err := s.tokensLastUsed(ctx, before)
	if err != nil {
		return nil, err
	}

	var keepOld time.Duration
	if in.Body != nil {
		keepOld = seconds(in.Body.KeepOldForSeconds)
	}
	if err := s.Editor.Rotate(ctx, in.ID, in.NodeID, keepOld); err != nil {
		return nil, s.rotationFailed(ctx, err)
	}
	info, err := s.Editor.Trigger(ctx, in.ID, in.NodeID)
	if err != nil {
		return nil, s.rotationFailed(ctx, err)
	}
	return &triggerOutput{s.triggerOnWire(info, used)}, nil
}

// rotationFailed is the one problem that must not say: repeat the call.
func (s *server) rotationFailed(ctx context.Context, err error) error {
	p := s.problemOf(err)
	switch p.Code {
	case api.CodeNotConfirmed:
		eventOf(ctx).err = err
		return p.notRetryable("The new token is stored, but not in force everywhere yet. Do not repeat the call, which would make another one: GET the trigger node to see it.")
	case api.CodeUnavailable:
		eventOf(ctx).err = err
		return p.notRetryable("NATS cannot be reached now. The new token may be stored or not: GET the trigger node before the call is repeated, which would make another one.")
	default:
		return err
	}
}

func (s *server) tokensLastUsed(ctx context.Context, info *registry.TriggerInfo) (map[string]time.Time, error) {
	ids := make([]string, len(info.Tokens))
	for i, t := range info.Tokens {
		ids[i] = t.ID
	}
	used, err := s.Store.TokensLastUsed(ctx, ids)
	return used, s.DatabaseError(ctx, err)
}

func (s *server) triggerOnWire(info *registry.TriggerInfo, used map[string]time.Time) api.Trigger {
	at := s.endpoint()
	wire := api.Trigger{
		NodeID: info.NodeID, Name: info.Name,
		Tokens:            make([]api.Token, 0, len(info.Tokens)),
		SamplePayload:     info.SamplePayload,
		DeliveryIDHeaders: at.deliveryIDHeaders,
		MaxBodyBytes:      at.maxBodyBytes,
		RateLimit:         api.RateLimit{Requests: info.RateLimit.Requests, WindowSeconds: int64(info.RateLimit.Window / time.Second)},
	}
	for _, t := range info.Tokens {
		token := api.Token{Token: t.Token, CreatedAt: t.CreatedAt, ExpiresAt: t.ExpiresAt}
		if last, was := used[t.ID]; was {
			token.LastUsedAt = &last
		}
		wire.Tokens = append(wire.Tokens, token)
	}
	if len(wire.Tokens) > 0 {
		wire.Token = wire.Tokens[0].Token
		wire.URL = at.publicURL + "/webhooks/" + info.Workflow.GetId() + "?token=" + wire.Token
	}
	return wire
}
