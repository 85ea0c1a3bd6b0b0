package operate

import (
	"context"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/sender"
)

// Recognized is the provider that a request to a node without a sender seems to come from. The zero
// value means that the node had a sender, or that the request matches no provider.
type Recognized struct {
	// Preset and Title are the ID and the name of the provider. "" means that the provider was not
	// recognized.
	Preset, Title string
	// URLCheck reports whether the request is a provider's check of the URL, which only a
	// configured sender answers.
	URLCheck bool
}

// recognize returns the provider that a request seems to come from.
func (r request) recognize() (found Recognized) {
	if r.expired() || r.sender != "" {
		return found
	}
	sent := r.toSenderRequest()
	found.URLCheck = sender.IsURLCheck(sent)
	if p, ok := sender.Recognize(sent); ok {
		found.Preset, found.Title = p.ID, p.Title
	}
	return found
}

// LastRecognized recognizes the provider and the format of the last request that a trigger node
// received.
func (s *Service) LastRecognized(
	ctx context.Context, caller Caller, workflowID, nodeID string,
) (Recognized, error) {
	return read(ctx, s, caller, newRule(Viewer, ofWorkflow(workflowID)),
		func(ctx context.Context) (none Recognized, err error) {
			last, err := s.config.Store.List(ctx, store.Filter{
				WorkflowID: workflowID, NodeID: nodeID, Source: execution.Webhook,
			}, store.Position{}, 1)
			if err != nil || len(last) == 0 {
				return none, err
			}
			request, err := s.request(ctx, last[0])
			return request.recognize(), err
		})
}
