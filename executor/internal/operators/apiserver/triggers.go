package apiserver

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
)

const triggerPath = "/workflows/{id}/triggers/{nodeId}"

func (s *server) routeTriggers(to huma.API) {
	register(to, operationSpec{
		method:       http.MethodGet,
		path:         triggerPath,
		id:           "get-trigger",
		tag:          tagTriggers,
		summary:      "Show a trigger node's settings",
		description:  "With its URL and its tokens in clear.",
		problemCodes: []string{api.CodeNotFound},
	}, func(ctx context.Context, caller operate.Caller, in *TriggerIDParams) (api.Trigger, error) {
		return s.Operate.TriggerNode(ctx, caller, in.ID, in.NodeID)
	})
	settings := newPatcher[api.TriggerSettings](to, "samplePayload", "filter", "answer")
	type output struct{ Body api.Trigger }
	registerPatch[api.TriggerSettings](to, operationSpec{
		path:         triggerPath,
		id:           "patch-trigger",
		tag:          tagTriggers,
		summary:      "Change a trigger node's settings",
		description:  "`If-Match` takes the `ETag` of its workflow.",
		problemCodes: []string{api.CodeIngressTooOld},
	}, func(ctx context.Context, caller operate.Caller, in *struct {
		TriggerUpdateParams
		patchBody
	},
	) (*output, error) {
		apply := settings.applyFunc(in.RawBody)
		t, err := s.Operate.PatchTrigger(ctx, caller, in.ID, in.NodeID,
			func(settings *api.TriggerSettings) error {
				err := apply(settings)
				if err == nil && removesMember(in.RawBody, "samplePayload") {
					settings.SamplePayload = json.RawMessage("null")
				}
				return err
			})
		return &output{t}, err
	})
	register(to, operationSpec{
		method:  http.MethodPut,
		path:    triggerPath + "/sample-payload",
		id:      "put-sample-payload",
		tag:     tagTriggers,
		summary: "Set the sample payload",
		description: "The body is the payload: any JSON value, at most 512 KiB. Reruns run on " +
			"it. `If-Match` takes the `ETag` of its workflow, which the payload does not change.",
		problemCodes: []string{api.CodeNotFound, api.CodeBodyTooLarge},
		anyJSON:      true,
	}, func(ctx context.Context, caller operate.Caller, in *struct {
		TriggerUpdateParams
		RawBody []byte `contentType:"application/json"`
	},
	) (api.Trigger, error) {
		return s.Operate.SetSamplePayload(ctx, caller, in.ID, in.NodeID, in.RawBody)
	})
	register(to, operationSpec{
		method:  http.MethodPost,
		path:    triggerPath + "/rotate-token",
		id:      "rotate-token",
		tag:     tagTriggers,
		summary: "Make a new token",
		description: "The tokens so far work for `keepOldForSeconds` longer, or as long as they " +
			"would have if that is shorter. Without a body they end at once. Each call makes " +
			"another token: do not repeat it blindly.",
		problemCodes: []string{
			api.CodeNotFound, api.CodeBodyTooLarge, api.CodeTooManyTokens, api.CodeNotConfirmed,
		},
	}, func(ctx context.Context, caller operate.Caller, in *struct {
		TriggerUpdateParams
		Body *api.RotateToken
	},
	) (api.Trigger, error) {
		var keepOld time.Duration
		if in.Body != nil {
			keepOld = time.Duration(in.Body.KeepOldForSeconds) * time.Second
		}
		return s.Operate.RotateToken(ctx, caller, in.ID, in.NodeID, keepOld)
	})
	s.routeTriggerTests(to)
}

// routeTriggerTests registers the calls that test a trigger node.
func (s *server) routeTriggerTests(to huma.API) {
	register(to, operationSpec{
		method:  http.MethodGet,
		path:    triggerPath + "/order-key-trial",
		id:      "try-order-key",
		tag:     tagTriggers,
		summary: "Count the last requests that have an order key",
		description: "Of the last 20 requests to the node that started an execution or were " +
			"rejected, it counts those that have a value at the place.",
		problemCodes: []string{api.CodeNotFound},
	}, func(ctx context.Context, caller operate.Caller, in *struct {
		TriggerIDParams
		OrderKey string `query:"orderKey" doc:"The place to try. Absent: the node's order key." example:"ptr:/order/id"`
	},
	) (api.OrderKeyTrial, error) {
		return s.Operate.CountRequestsWithOrderKey(ctx, caller, in.ID, in.NodeID, in.OrderKey)
	})
	register(to, operationSpec{
		method:  http.MethodPost,
		path:    triggerPath + "/rerun",
		id:      "rerun-trigger",
		tag:     tagTriggers,
		summary: "Start an execution on the sample payload",
		description: "Neither the plan nor `active` keeps it from starting: a workflow can be " +
			"tried before it is activated.",
		problemCodes: []string{api.CodeNotFound, api.CodeSamplePayloadMissing},
	}, func(ctx context.Context, caller operate.Caller, in *TriggerIDParams) (api.Started, error) {
		return s.Operate.RerunTrigger(ctx, caller, in.ID, in.NodeID, "")
	})
	register(to, operationSpec{
		method:  http.MethodPost,
		path:    triggerPath + "/send-test",
		id:      "send-test",
		tag:     tagTriggers,
		summary: "Post to the webhook URL as the sender would",
		description: "The executor posts the sample payload, or what is given, to the public " +
			"URL, signed with the sender's newest secret, which nobody sees. Refusals of the " +
			"endpoint are answers, too: `status` and `code` say them.",
		problemCodes: []string{
			api.CodeNotFound, api.CodeBodyTooLarge, api.CodeSamplePayloadMissing,
			api.CodeSenderCannotSign, api.CodeSecretsKeyMissing, api.CodeEndpointUnreachable,
		},
	}, func(ctx context.Context, caller operate.Caller, in *struct {
		TriggerIDParams
		Body *api.SendTest
	},
	) (api.SentTest, error) {
		var test api.SendTest
		if in.Body != nil {
			test = *in.Body
		}
		return s.Operate.SendTest(ctx, caller, in.ID, in.NodeID, test)
	})
}

// TriggerIDParams holds the path parameters with the IDs of a workflow and of one of its trigger
// nodes.
type TriggerIDParams struct {
	WorkflowIDParam
	NodeID string `path:"nodeId" doc:"The trigger node's ID." example:"webhook"`
}

// TriggerUpdateParams is the input of a call that changes a trigger node: the node's path
// parameters and a precondition.
type TriggerUpdateParams struct {
	TriggerIDParams
	WorkflowIfMatchHeader
}
