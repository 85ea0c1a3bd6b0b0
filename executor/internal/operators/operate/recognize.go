package operate

import (
	"context"
	"mime"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/sender"
)

// RecognizedProvider describes the provider that seems to have sent a request, as far as the
// request reveals it. The zero value means that the request reveals nothing.
type RecognizedProvider struct {
	// Preset and Title are the ID and the name of the provider. Both are "" if the provider was not
	// recognized, or if the node already had a sender.
	Preset, Title string
	// URLCheck reports whether the request is a provider's check of the URL, which the ingress
	// answers correctly only if the node has a sender. URLCheck is false if the node already had
	// one.
	URLCheck bool
	// AsForm reports whether GitHub sent the request as a form, with the event as JSON text in the
	// field payload. GitHub has a setting to send plain JSON instead.
	AsForm bool
}

// gitHubPreset is the ID of GitHub's preset.
const gitHubPreset = "github"

// recognizeProvider describes the provider that a request seems to come from. If the request's
// message has expired, it returns the zero value.
func (r storedRequest) recognizeProvider() (found RecognizedProvider) {
	if r.expired() {
		return found
	}
	sent := r.toSenderRequest()
	provider, known := sender.Recognize(sent)
	if r.senderPreset == gitHubPreset || r.senderPreset == "" && known &&
		provider.ID == gitHubPreset {
		found.AsForm = r.hasFormPayload()
	}
	if r.senderPreset != "" {
		return found
	}
	found.URLCheck = sender.IsURLVerification(sent)
	if known {
		found.Preset, found.Title = provider.ID, provider.Title
	}
	return found
}

// hasFormPayload reports whether the body is a URL-encoded form with a field named "payload".
func (r storedRequest) hasFormPayload() bool {
	mediaType, _, err := mime.ParseMediaType(r.payload.ContentType)
	if err != nil || mediaType != "application/x-www-form-urlencoded" {
		return false
	}
	form, err := r.payload.Form()
	return err == nil && form.Has("payload")
}

// ProviderOfLastRequest returns what the last request to a trigger node reveals about its provider.
// A request that arrived while the workflow was in another account is ignored. If the node now has
// a sender, only AsForm is set in the result.
func (s *Service) ProviderOfLastRequest(
	ctx context.Context, caller Caller, workflowID, nodeID string,
) (RecognizedProvider, error) {
	return runRead(ctx, s, caller,
		newAccessRule("ProviderOfLastRequest", accessToWorkflow(workflowID)),
		func(ctx context.Context) (none RecognizedProvider, err error) {
			node, err := s.config.Editor.Trigger(ctx, workflowID, nodeID)
			if err != nil {
				return none, err
			}
			last, err := s.config.Store.List(ctx, store.RecordFilter{
				AccountID: node.Workflow.AccountID, WorkflowID: workflowID, NodeID: nodeID,
				Source: execution.SourceWebhook,
			}, store.RecordPosition{}, 1)
			if err != nil || len(last) == 0 {
				return none, err
			}
			request, err := s.readStoredRequest(ctx, last[0])
			found := request.recognizeProvider()
			if node.Sender != nil {
				found = RecognizedProvider{AsForm: found.AsForm}
			}
			return found, err
		})
}
