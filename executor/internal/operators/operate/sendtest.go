package operate

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/textproto"
	"net/url"
	"slices"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/testsend"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/sender"
	"github.com/hookstart/hookstart/shared/webhook"
)

// SendTest sends a test request to the node's webhook URL. The request has the form that the node's
// sender uses, and is signed with the sender's newest secret. SendTest returns the endpoint's
// response, even a refusal. It runs in the executor so that the secret does not leave the executor.
// If the executor cannot sign the request, it sends nothing.
func (s *Service) SendTest(
	ctx context.Context, caller Caller, workflowID, nodeID string, test api.SendTest,
) (api.SentTest, error) {
	within := readTimeout + testsend.Timeout
	return runChange(ctx, s, caller,
		newAccessRule("SendTest", accessToWorkflow(workflowID)), within,
		func(ctx context.Context) (none api.SentTest, err error) {
			info, err := s.config.Editor.Trigger(ctx, workflowID, nodeID)
			if err != nil {
				return none, err
			}
			as, err := s.senderForTest(ctx, workflowID, nodeID)
			if err != nil {
				return none, err
			}
			request, err := s.newTestRequest(info, test)
			if err != nil {
				return none, err
			}
			return s.signAndSendTest(ctx, info, as, request, test.DeliveryID)
		})
}

// senderForTest returns a node's sender, or, if the node has none, a sender that does not sign
// requests.
func (s *Service) senderForTest(
	ctx context.Context, workflowID, nodeID string,
) (*sender.Sender, error) {
	config, err := s.config.Editor.DecryptedSender(ctx, workflowID, nodeID)
	if err != nil {
		return nil, err
	}
	if config == nil {
		config = &sender.Config{Preset: "plain"}
	}
	return sender.Compile(*config)
}

// newTestRequest returns the unsigned request of a test. If the test has no body, the body is the
// node's sample payload.
func (s *Service) newTestRequest(
	at *edit.TriggerInfo, test api.SendTest,
) (r sender.Request, err error) {
	r = sender.Request{Method: "POST", Header: map[string][]string{}}
	switch {
	case test.Body == nil && at.SamplePayload == nil:
		return r, errNoSamplePayload
	case test.Body == nil:
		r.Body = at.SamplePayload
	case test.BodyEncoding == "base64":
		if r.Body, err = base64.StdEncoding.DecodeString(*test.Body); err != nil {
			return r, &edit.InvalidFieldError{
				Field:   "body",
				Problem: "is not base64, as bodyEncoding says",
			}
		}
	default:
		r.Body = []byte(*test.Body)
	}
	for name, values := range test.Headers {
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		if canonical == "Host" || !isValidHeader(name, values) {
			return r, &edit.InvalidFieldError{
				Field:   "headers",
				Problem: fmt.Sprintf("%q cannot be sent", name),
			}
		}
		r.Header[canonical] = values
	}
	contentType := test.ContentType
	if contentType == "" && execution.ValidJSON(r.Body) {
		contentType = "application/json"
	}
	if contentType != "" {
		if !isValidHeader("Content-Type", []string{contentType}) {
			return r, &edit.InvalidFieldError{Field: "contentType", Problem: "cannot be sent"}
		}
		r.Header["Content-Type"] = []string{contentType}
	}
	return r, nil
}

// isValidHeader reports whether the name and the values of a header are valid in an HTTP request.
func isValidHeader(name string, values []string) bool {
	return httpguts.ValidHeaderFieldName(name) &&
		!slices.ContainsFunc(values, func(value string) bool {
			return !httpguts.ValidHeaderFieldValue(value)
		})
}

// signAndSendTest sets the delivery ID of r, signs r as a real sender would, and sends it. as is
// the node's sender.
func (s *Service) signAndSendTest(
	ctx context.Context, at *edit.TriggerInfo, as *sender.Sender, r sender.Request,
	deliveryID string,
) (none api.SentTest, err error) {
	if len(at.Tokens) == 0 {
		return none,
			fmt.Errorf("trigger node %q of workflow %q has no token", at.NodeID, at.Workflow.ID)
	}
	to := s.ingressEndpoint()
	base := to.publicURL + "/webhooks/" + at.Workflow.ID
	if u, err := url.Parse(base); err == nil {
		r.Host = u.Host // a signature may cover it
	}
	r.Query = "token=" + at.Tokens[0].Token
	if to.publicURLConfigured {
		r.URL = base + "?" + r.Query
	}
	if deliveryID != "" && !as.SetDeliveryID(&r, deliveryID) {
		header := textproto.CanonicalMIMEHeaderKey(webhook.PriorityDeliveryIDHeaders()[0])
		r.Header[header] = []string{deliveryID}
	}
	now := time.Now()
	signed, err := as.Sign(r, now)
	if err != nil {
		return none, signingError(as, err)
	}
	response, err := s.config.TestSendClient.Post(ctx, testsend.Request{
		URL:    base + "?" + signed.Query,
		Header: signed.Header,
		Body:   signed.Body,
	})
	if err != nil {
		return none, &Error{Code: api.CodeEndpointUnreachable, Cause: err, Detail: fmt.Sprintf(
			"The webhook endpoint at %s does not answer this executor: %v. Check --public-url, "+
				"the name, the proxy and the firewalls on the way.", to.publicURL, err)}
	}
	isHandshake := as.Handshake(&sender.Request{
		Method: "POST",
		Header: signed.Header,
		Host:   r.Host,
		Query:  signed.Query,
		URL:    r.URL,
		Body:   signed.Body,
	}, now) != nil
	// If the node has a filter, a successful response without an execution ID means that the
	// request was filtered, unless the request is a handshake.
	filtered := response.Filtered ||
		at.Filter != nil && !isHandshake && response.ExecutionID == "" && response.Status/100 == 2
	if response.ExecutionID == "" && response.Code == "" &&
		(!isHandshake && !filtered || response.Status/100 != 2) {
		return none, &Error{Code: api.CodeEndpointUnreachable, Detail: fmt.Sprintf(
			"Something else than a webhook endpoint answers at %s, with status %d. Check "+
				"--public-url, and that the proxy passes /webhooks/ on to the ingress.",
			to.publicURL, response.Status)}
	}
	return api.SentTest{
		Success:      response.Status/100 == 2,
		Status:       response.Status,
		ExecutionID:  response.ExecutionID,
		Deduplicated: response.Deduplicated,
		Filtered:     filtered,
		Code:         response.Code,
		Detail:       response.Detail,
		Outcome:      response.Outcome,
		RetryAfter:   response.RetryAfter,
	}, nil
}

// signingError returns the error for a test that the node's sender cannot sign, and explains what
// to do instead. why is the error of Sign.
func signingError(as *sender.Sender, why error) error {
	preset, _ := sender.LookupPreset(as.Preset())
	const instead = " Or start an execution on the sample payload without the endpoint: POST " +
		"…/rerun, or hookstart trigger rerun."
	switch {
	case errors.Is(why, sender.ErrPublicKeyOnly):
		return &Error{
			Code: api.CodeSenderCannotSign, Cause: why,
			Detail: "Only " + preset.Title +
				" can sign its requests: hookstart has the public key, and the private key never " +
				"leaves " +
				preset.Title + ". Let it send a test of its own." + instead,
		}
	case errors.Is(why, sender.ErrNoSecret):
		return &Error{
			Code:  api.CodeSenderCannotSign,
			Cause: why,
			Detail: "The sender has no secret yet, so nothing can be signed. Add one: POST " +
				"…/sender/secrets, or hookstart sender rotate." + instead,
		}
	case errors.Is(why, sender.ErrNoURL):
		return &Error{
			Code:  api.CodeSenderCannotSign,
			Cause: why,
			Detail: preset.Title +
				" signs the URL, and no ingress knows its public URL. Start it with --public-url." +
				instead,
		}
	case errors.Is(why, sender.ErrUnsupportedBody):
		return &edit.InvalidFieldError{
			Field: "body",
			Problem: "has not the form of " + preset.Title +
				"'s bodies, which the signature depends on: send a JSON object, or a form, as " +
				preset.DocsURL + " shows it",
		}
	default:
		return why
	}
}
