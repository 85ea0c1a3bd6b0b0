package apiclient

import (
	"context"
	"net/http"
	"net/url"

	"github.com/hookstart/hookstart/executor/api"
)

// SenderPresets lists the kinds of senders.
func (c *Client) SenderPresets(ctx context.Context) (list api.List[api.SenderPreset], err error) {
	err = c.call(ctx, http.MethodGet, "/senders", nil, nil, &list)
	return list, err
}

// Sender returns who calls a trigger node, without the secrets.
func (c *Client) Sender(ctx context.Context, workflowID, nodeID string) (s api.Sender, err error) {
	err = c.call(ctx, http.MethodGet, trigger(workflowID, nodeID)+"/sender", nil, nil, &s)
	return s, err
}

// PutSender says who calls a trigger node.
func (c *Client) PutSender(ctx context.Context, workflowID, nodeID string, put api.PutSender) (s api.Sender, err error) {
	err = c.call(ctx, http.MethodPut, trigger(workflowID, nodeID)+"/sender", nil, put, &s)
	return s, err
}

// DeleteSender leaves a trigger node with its token alone.
func (c *Client) DeleteSender(ctx context.Context, workflowID, nodeID string) error {
	return c.call(ctx, http.MethodDelete, trigger(workflowID, nodeID)+"/sender", nil, nil, nil)
}

// AddSenderSecret gives a node's sender another secret, the newest.
func (c *Client) AddSenderSecret(ctx context.Context, workflowID, nodeID string, add api.AddSenderSecret) (s api.Sender, err error) {
	err = c.call(ctx, http.MethodPost, trigger(workflowID, nodeID)+"/sender/secrets", nil, add, &s)
	return s, err
}

// DeleteSenderSecret ends one secret of a node's sender.
func (c *Client) DeleteSenderSecret(ctx context.Context, workflowID, nodeID, secretID string) error {
	return c.call(ctx, http.MethodDelete, trigger(workflowID, nodeID)+"/sender/secrets/"+url.PathEscape(secretID), nil, nil, nil)
}
