package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/shared/registry"
)

const adminToken = "the-admin-token-of-the-bench"

// accountID is the ID of the account that owns all workflows.
const accountID = "bench"

// nodeID is the ID of the trigger node of every workflow.
const nodeID = "node"

// nodeSettings are settings of every workflow's trigger node. The zero value has none.
type nodeSettings struct {
	trigger    api.PutTrigger // NodeID is ignored: every node has the ID nodeID
	bearerAuth bool           // whether requests carry the token in the Authorization header
}

// makeWorkflows creates the workflows for the load, with a rate limit that is never reached. Only
// the first one is created through the API; the others are copies of its record and token, because
// a million API calls would take half an hour.
func (s *system) makeWorkflows(ctx context.Context, count int) error {
	if _, err := s.api().PutAccount(ctx, accountID,
		api.PutAccount{Name: "Bench", Plan: "ultra"}); err != nil {
		return err
	}
	token, err := s.makeWorkflow(ctx, 0, 1_000_000)
	if err != nil {
		return err
	}
	if s.nodeSettings.bearerAuth {
		s.path, s.bearerToken = firstWebhookPath, token
	} else {
		s.path = firstWebhookPath + "?token=" + token
	}
	return s.copyWorkflow(ctx, count)
}

func (s *system) api() *apiclient.Client { return apiclient.New("http://"+s.apiAddr, adminToken) }

// makeWorkflow creates and activates the nth workflow, with a rate limit of perSecond requests per
// second, and returns the token of its node.
func (s *system) makeWorkflow(
	ctx context.Context, n int, perSecond int64,
) (token string, err error) {
	client, id, trigger := s.api(), workflowID(n), s.nodeSettings.trigger
	trigger.NodeID = nodeID
	if _, err := client.PutWorkflow(ctx, id, api.PutWorkflow{
		AccountID: accountID,
		Name:      "Bench",
		RateLimit: &api.RateLimit{Requests: perSecond, WindowSeconds: 1},
		Triggers:  []api.PutTrigger{trigger},
	}); err != nil {
		return "", err
	}
	if _, err := client.Activate(ctx, id); err != nil {
		return "", err
	}
	created, err := client.Trigger(ctx, id, nodeID)
	return created.Token, err
}

// publishAckTimeout is the maximum time to wait for the acknowledgement of a published message.
const publishAckTimeout = time.Minute

// copyWorkflow stores copies of the first workflow until there are count workflows in all.
func (s *system) copyWorkflow(ctx context.Context, count int) error {
	if count == 1 {
		return nil
	}
	return s.storeWorkflowCopies(ctx, count-1, func(*registry.Workflow, int) {})
}

// storeWorkflowCopies stores the given number of copies of the first workflow, as workflows 1, 2
// and so on. Before it stores a copy, it calls change with the copy and an index that is 0 for
// workflow 1.
func (s *system) storeWorkflowCopies(
	ctx context.Context, copies int, change func(copied *registry.Workflow, number int),
) error {
	kv, err := s.js.KeyValue(ctx, registry.Bucket)
	if err != nil {
		return err
	}
	keys, err := kv.ListKeysFiltered(ctx, "*."+workflowID(0))
	if err != nil {
		return err
	}
	defer func() { _ = keys.Stop() }()
	key, ok := <-keys.Keys()
	if !ok {
		return fmt.Errorf("the registry has no %s", workflowID(0))
	}
	entry, err := kv.Get(ctx, key)
	if err != nil {
		return err
	}
	record, err := registry.DecodeWorkflow(entry.Value())
	if err != nil {
		return err
	}
	prefix := registry.SubjectOf(registry.Bucket, key[:len(key)-len(workflowID(0))])
	for n := range copies {
		record.ID = workflowID(n + 1)
		change(record, n)
		data, err := record.Encode()
		if err != nil {
			return err
		}
		if _, err := s.js.PublishAsync(prefix+record.ID, data,
			jetstream.WithStallWait(publishAckTimeout)); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, publishAckTimeout)
	defer cancel()
	return s.awaitPublished(ctx)
}

// awaitPublished waits until the stream has acknowledged all messages that were published
// asynchronously.
func (s *system) awaitPublished(ctx context.Context) error {
	select {
	case <-s.js.PublishAsyncComplete():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("not everything was stored: %w", ctx.Err())
	}
}
