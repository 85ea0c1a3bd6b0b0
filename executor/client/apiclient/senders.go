package apiclient

import (
	"context"
	"net/http"
	"net/url"

	"github.com/hookstart/hookstart/executor/client/api"
)

// SenderPresets lists all presets of senders.
func (c *Client) SenderPresets(
	ctx context.Context,
) (all api.List[api.SenderPreset], _ error) {
	for p, err := range Items(func(page Page) (api.List[api.SenderPreset], error) {
		return list[api.SenderPreset](ctx, c, "/senders", page, nil)
	}) {
		if err != nil {
			return api.List[api.SenderPreset]{}, err
		}
		all.Items = append(all.Items, p)
	}
	return all, nil
}

// Sender returns a trigger node's sender, without its secrets.
func (c *Client) Sender(ctx context.Context, workflowID, nodeID string) (api.Sender, error) {
	return get[api.Sender](ctx, c, triggerPath(workflowID, nodeID)+"/sender")
}

// PutSender sets or replaces the sender of a trigger node. If the sender's preset verifies
// requests, the ingress then refuses requests that fail the verification.
func (c *Client) PutSender(
	ctx context.Context, workflowID, nodeID string, put api.PutSender,
) (api.Sender, error) {
	return send[api.Sender](ctx, c, http.MethodPut, triggerPath(workflowID, nodeID)+"/sender", put)
}

// DeleteSender removes a trigger node's sender; only the token then protects the node.
func (c *Client) DeleteSender(ctx context.Context, workflowID, nodeID string) error {
	return c.delete(ctx, triggerPath(workflowID, nodeID)+"/sender")
}

// AddSenderSecret adds a secret to a node's sender, as the newest one.
func (c *Client) AddSenderSecret(
	ctx context.Context, workflowID, nodeID string, add api.AddSenderSecret,
) (api.Sender, error) {
	return send[api.Sender](ctx, c, http.MethodPost,
		triggerPath(workflowID, nodeID)+"/sender/secrets", add)
}

// DeleteSenderSecret removes a secret from a node's sender.
func (c *Client) DeleteSenderSecret(
	ctx context.Context, workflowID, nodeID, secretID string,
) error {
	return c.delete(ctx,
		triggerPath(workflowID, nodeID)+"/sender/secrets/"+url.PathEscape(secretID))
}
