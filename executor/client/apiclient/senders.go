package apiclient

import (
	"context"
	"net/http"
	"net/url"

	"github.com/hookstart/hookstart/executor/client/api"
)

// SenderPresets lists the kinds of senders.
func (c *Client) SenderPresets(ctx context.Context) (api.List[api.SenderPreset], error) {
	return get[api.List[api.SenderPreset]](ctx, c, "/senders")
}

// Sender returns who calls a trigger node, without the secrets.
func (c *Client) Sender(ctx context.Context, workflowID, nodeID string) (api.Sender, error) {
	return get[api.Sender](ctx, c, trigger(workflowID, nodeID)+"/sender")
}

// PutSender says who calls a trigger node.
func (c *Client) PutSender(ctx context.Context, workflowID, nodeID string, put api.PutSender) (api.Sender, error) {
	return send[api.Sender](ctx, c, http.MethodPut, trigger(workflowID, nodeID)+"/sender", put)
}

// DeleteSender leaves a trigger node with its token alone.
func (c *Client) DeleteSender(ctx context.Context, workflowID, nodeID string) error {
	return c.delete(ctx, trigger(workflowID, nodeID)+"/sender")
}

// AddSenderSecret gives a node's sender another secret, the newest.
func (c *Client) AddSenderSecret(ctx context.Context, workflowID, nodeID string, add api.AddSenderSecret) (api.Sender, error) {
	return send[api.Sender](ctx, c, http.MethodPost, trigger(workflowID, nodeID)+"/sender/secrets", add)
}

// DeleteSenderSecret ends one secret of a node's sender.
func (c *Client) DeleteSenderSecret(ctx context.Context, workflowID, nodeID, secretID string) error {
	return c.delete(ctx, trigger(workflowID, nodeID)+"/sender/secrets/"+url.PathEscape(secretID))
}
