package console

import (
	"context"
	"errors"
	"net/url"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/operators/signin"
	"github.com/hookstart/hookstart/shared/webhook"
)

// workflowRefusals holds the number of a workflow's requests that were refused in the last 24
// hours, for each refusal code.
type workflowRefusals struct {
	WorkflowID string
	Rows       []refusal
	Missing    bool // the refusals could not be read because the database was too slow
}

type refusal struct {
	api.Refusal
	Advice string
}

// Total returns the total number of refused requests.
func (r workflowRefusals) Total() (n int64) {
	for _, row := range r.Rows {
		n += row.Count
	}
	return n
}

// FragmentURL returns the URL from which fragments.js loads the refusals.
func (r workflowRefusals) FragmentURL() string {
	return "/fragments/refusals?" + url.Values{"workflow": {r.WorkflowID}}.Encode()
}

// refusalAdvice maps each refusal code to a text that says what operators can do about it.
var refusalAdvice = map[webhook.Code]string{
	webhook.CodeWorkflowIDMissing: "The URL has no workflow ID. Copy it again, whole.",
	webhook.CodeWorkflowNotFound: "No workflow has the ID in the URL: the URL was mistyped, or " +
		"the " +
		"workflow was deleted.",
	webhook.CodeNotFound: "No webhook has this path. Copy the URL again, whole.",
	webhook.CodeMethodNotAllowed: "A webhook is called with POST. A browser or a health check " +
		"may " +
		"have opened the URL.",
	webhook.CodeTokenMissing: "The URL was called without its token. Copy it again, whole.",
	webhook.CodeTokenInvalid: "The token does not belong to this workflow. If it was rotated, " +
		"give the sender the new URL.",
	webhook.CodeWebhooksNotInPlan: "The account's plan has no webhook triggers. Change the plan.",
	webhook.CodePlanLimitExceeded: "The workflow is active, but past its plan's number of active " +
		"workflows. Deactivate others until there is room, or change the plan.",
	webhook.CodeSignatureMissing: "The node has a sender, and the request lacks its signature. " +
		"At " +
		"the sender, set the secret that signs its requests. The node's parameters say what was " +
		"missing.",
	webhook.CodeSignatureInvalid: "The node's sender signs with another secret, or what is " +
		"between " +
		"it and the ingress changes the body. Set the same secret at the sender and here.",
	webhook.CodeSignatureExpired: "The request was signed too long before it came, or in the " +
		"future. Compare the sender's clock with the ingress's; the sender's setting " +
		"toleranceSeconds says how far they may be apart.",
	webhook.CodeRateLimited: "The workflow is over its rate limit, or its account over its " +
		"bytes per day. The sender was told when to try again. Give the workflow a limit of its " +
		"own in its settings, or change the plan.",
	webhook.CodeWorkflowInactive: "The workflow is not active: the switch at the top of its page " +
		"activates it. Each request is recorded as a rejected execution.",
	webhook.CodeDeliveryIDInvalid: "The delivery ID was longer than 255 bytes. The sender has to " +
		"send a shorter one.",
	webhook.CodeBodyTooLarge: "The body was longer than the limit, which the workflow's page " +
		"shows " +
		"under “In force”. The ingress's --max-body-bytes sets it.",
	webhook.CodeBodyUnreadable: "The body broke off, or did not arrive in time.",
	webhook.CodeJSONInvalid: "The body was declared as JSON but is not valid JSON. The sender " +
		"has " +
		"to correct it, or to declare another Content-Type.",
	webhook.CodeUnavailable: "The stream was unavailable. The sender was told to try again.",
	webhook.CodeOverloaded: "The ingress or the stream was overloaded. The sender was told to " +
		"try " +
		"again.",
	webhook.CodeRunFailed: "The request was accepted, but its run failed, was canceled, or has " +
		"an " +
		"output that cannot be the answer. The execution says why.",
	webhook.CodeStorageFull: "The stream was full, or nearly full and the account held its " +
		"share of " +
		"it. " +
		"The sender was told to try again. “hookstart admin stream --max-bytes” gives it more " +
		"room.",
	webhook.CodeInternal: "The ingress's log says why.",
}

func (c *Console) workflowRefusals(
	ctx context.Context, workflowID string,
) (workflowRefusals, error) {
	ctx, cancel := context.WithTimeout(ctx, countQueryTimeout)
	defer cancel()
	found := workflowRefusals{WorkflowID: workflowID}
	counted, err := c.Operate.Refusals(ctx, signin.Caller(ctx), "", workflowID, time.Time{},
		operate.PageOptions{Limit: api.MaxLimit})
	if errors.Is(err, context.DeadlineExceeded) {
		found.Missing = true
		return found, nil
	}
	for _, one := range counted.Items {
		found.Rows = append(found.Rows, refusal{one, refusalAdvice[webhook.Code(one.Code)]})
	}
	return found, err
}
