package apiserver

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/executor/internal/signin"
)

const senderPath = triggerPath + "/sender"

func (s *server) routeSenders(to huma.API) {
	register(to, call{
		method: http.MethodGet, path: "/senders", id: "list-senders", tag: tagTriggers,
		summary: "List the kinds of senders", description: "The presets: what is known of each provider.",
	}, s.listSenders)
	register(to, call{
		method: http.MethodGet, path: senderPath, id: "get-sender", tag: tagTriggers,
		summary: "Show who calls a trigger node", description: "Without the secrets. `not_found`: the token alone opens the node.",
		codes: []string{api.CodeNotFound, api.CodeSecretsKeyMissing},
	}, s.getSender)
	register(to, call{
		method: http.MethodPut, path: senderPath, id: "put-sender", tag: tagTriggers,
		summary: "Say who calls a trigger node",
		description: "From the very next request on, requests must be the sender's. What could not work is refused here: a preset that verifies and has no " +
			"secret, a secret that cannot be decoded.",
		codes:     []string{api.CodeNotFound, api.CodeInvalid, api.CodeBodyTooLarge, api.CodeTooManySecrets, api.CodeSecretsKeyMissing, api.CodeNotConfirmed},
		responses: map[string]*huma.Response{"201": response[api.Sender](to, "Created")},
	}, s.putSender)
	register(to, call{
		method: http.MethodDelete, path: senderPath, id: "delete-sender", tag: tagTriggers,
		summary: "Go back to the token alone", codes: []string{api.CodeNotFound, api.CodeNotConfirmed},
	}, s.deleteSender)
	register(to, call{
		method: http.MethodPost, path: senderPath + "/secrets", id: "add-sender-secret", tag: tagTriggers,
		summary:     "Add a secret, the newest",
		description: "Requests are verified with every secret that has not ended, so that a secret can be changed without a refused request.",
		codes:       []string{api.CodeNotFound, api.CodeInvalid, api.CodeBodyTooLarge, api.CodeTooManySecrets, api.CodeSecretsKeyMissing, api.CodeNotConfirmed},
		status:      http.StatusCreated,
	}, s.addSenderSecret)
	register(to, call{
		method: http.MethodDelete, path: senderPath + "/secrets/{secretId}", id: "delete-sender-secret", tag: tagTriggers,
		summary: "End a secret", codes: []string{api.CodeNotFound, api.CodeLastSecret, api.CodeNotConfirmed},
	}, s.deleteSenderSecret)
}

func (s *server) listSenders(ctx context.Context, _ *struct{}) (*listOutput[api.SenderPreset], error) {
	return listed(s.Operate.SenderPresets(ctx, signin.Caller(ctx)))
}

func (s *server) getSender(ctx context.Context, in *TriggerID) (*output[api.Sender], error) {
	return answered(s.Operate.Sender(ctx, signin.Caller(ctx), in.ID, in.NodeID))
}

func (s *server) putSender(ctx context.Context, in *struct {
	TriggerID
	Body api.PutSender
},
) (*putOutput[api.Sender], error) {
	return stored(s.Operate.PutSender(ctx, signin.Caller(ctx), in.ID, in.NodeID, in.Body))
}

func (s *server) deleteSender(ctx context.Context, in *TriggerID) (*struct{}, error) {
	return nil, s.Operate.RemoveSender(ctx, signin.Caller(ctx), in.ID, in.NodeID)
}

func (s *server) addSenderSecret(ctx context.Context, in *struct {
	TriggerID
	Body api.AddSenderSecret
},
) (*output[api.Sender], error) {
	return answered(s.Operate.AddSenderSecret(ctx, signin.Caller(ctx), in.ID, in.NodeID, in.Body))
}

func (s *server) deleteSenderSecret(ctx context.Context, in *struct {
	TriggerID
	SecretID string `path:"secretId" doc:"The secret's ID." example:"6TZQK2M4ABCD"`
},
) (*struct{}, error) {
	return nil, s.Operate.RemoveSenderSecret(ctx, signin.Caller(ctx), in.ID, in.NodeID, in.SecretID)
}
