package apiserver

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
)

const senderPath = triggerPath + "/sender"

func (s *server) routeSenders(to huma.API) { //nolint:funlen // the list of calls
	register(to, operationSpec{
		method:      http.MethodGet,
		path:        "/senders",
		id:          "list-senders",
		tag:         tagTriggers,
		summary:     "List the kinds of senders",
		description: "The presets: what is known of each provider. Every account may use all.",
	},
		func(ctx context.Context, caller operate.Caller, in *ListInput) (api.List[api.SenderPreset],
			error,
		) {
			return s.Operate.SenderPresets(ctx, caller, in.AccountID, in.page())
		})
	register(to, operationSpec{
		method:       http.MethodGet,
		path:         senderPath,
		id:           "get-sender",
		tag:          tagTriggers,
		summary:      "Show who calls a trigger node",
		description:  "Without the secrets. `not_found`: the token alone opens the node.",
		problemCodes: []string{api.CodeNotFound, api.CodeSecretsKeyMissing},
	}, func(ctx context.Context, caller operate.Caller, in *TriggerIDParams) (api.Sender, error) {
		return s.Operate.Sender(ctx, caller, in.ID, in.NodeID)
	})
	registerPut(to, operationSpec{
		method: http.MethodPut, path: senderPath, id: "put-sender", tag: tagTriggers,
		summary: "Say who calls a trigger node",
		description: "From the very next request on, requests must be the sender's. What could " +
			"not work is refused here: a preset that verifies and has no secret, a secret that " +
			"cannot be decoded.",
		problemCodes: []string{
			api.CodeNotFound, api.CodeBodyTooLarge, api.CodeTooManySecrets, api.CodeIngressTooOld,
			api.CodeSecretsKeyMissing, api.CodeNotConfirmed,
		},
	}, func(ctx context.Context, caller operate.Caller, in *struct {
		TriggerUpdateParams
		Body api.PutSender
	},
	) (operate.PutResult[api.Sender], error) {
		return s.Operate.PutSender(ctx, caller, in.ID, in.NodeID, in.Body)
	})
	registerNoContent(to, operationSpec{
		method:       http.MethodDelete,
		path:         senderPath,
		id:           "delete-sender",
		tag:          tagTriggers,
		summary:      "Go back to the token alone",
		problemCodes: []string{api.CodeNotFound, api.CodeNotConfirmed},
	}, func(ctx context.Context, caller operate.Caller, in *TriggerUpdateParams) error {
		return s.Operate.RemoveSender(ctx, caller, in.ID, in.NodeID)
	})
	register(to, operationSpec{
		method:  http.MethodPost,
		path:    senderPath + "/secrets",
		id:      "add-sender-secret",
		tag:     tagTriggers,
		summary: "Add a secret, the newest",
		description: "Requests are verified with every secret that has not ended, so that a " +
			"secret can be changed without a refused request.",
		problemCodes: []string{
			api.CodeNotFound, api.CodeBodyTooLarge, api.CodeTooManySecrets,
			api.CodeSecretsKeyMissing, api.CodeNotConfirmed,
		},
		successStatus: http.StatusCreated,
	}, func(ctx context.Context, caller operate.Caller, in *struct {
		TriggerUpdateParams
		Body api.AddSenderSecret
	},
	) (api.Sender, error) {
		return s.Operate.AddSenderSecret(ctx, caller, in.ID, in.NodeID, in.Body)
	})
	registerNoContent(to, operationSpec{
		method:       http.MethodDelete,
		path:         senderPath + "/secrets/{secretId}",
		id:           "delete-sender-secret",
		tag:          tagTriggers,
		summary:      "End a secret",
		problemCodes: []string{api.CodeNotFound, api.CodeLastSecret, api.CodeNotConfirmed},
	}, func(ctx context.Context, caller operate.Caller, in *struct {
		TriggerUpdateParams
		SecretID string `path:"secretId" doc:"The secret's ID." example:"6TZQK2M4ABCD"`
	},
	) error {
		return s.Operate.RemoveSenderSecret(ctx, caller, in.ID, in.NodeID, in.SecretID)
	})
}
