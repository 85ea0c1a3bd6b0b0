package cli

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/noredirect"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/ops"
	"github.com/hookstart/hookstart/shared/webhook"
)

// sendTimeout is the timeout of a request. An ingress always responds sooner.
const sendTimeout = 60 * time.Second

type triggerSendCmd struct {
	nodeArgs
	File        string   `help:"Send what is in this file. -: stdin." placeholder:"PATH" xor:"payload"`
	Data        *string  `help:"Send this." placeholder:"TEXT" xor:"payload"`
	ContentType string   `help:"Default: application/json if the body is JSON, else none." placeholder:"TYPE"`
	DeliveryID  string   `name:"delivery-id" help:"The ID by which a repeat of this delivery is recognised." placeholder:"ID"`
	Header      []string `help:"A further header; may be repeated." placeholder:"NAME:VALUE" sep:"none"`
}

func (*triggerSendCmd) Help() string {
	return `Without --file and --data the sample payload is sent. A refusal's exit code is 1.

To a node with a sender the executor sends it, signed with the newest secret, which
nobody else has, and with the delivery ID where the sender puts its own.

Examples:

  hookstart trigger send demo
  hookstart trigger send demo --data '{"order": 1}' --delivery-id order-1
  echo hello | hookstart trigger send demo webhook --file -`
}

// Run sends the request directly from this machine, as a sender would, and prints the whole
// response. The executor could send the request instead, but that would not show whether the public
// URL can be reached from this machine. In addition, its response, api.SentTest, does not contain
// the result of an execution if the webhook waits for that result. If the node has a sender,
// however, only the executor knows the secret, so the executor sends the request.
func (v *triggerSendCmd) Run(s *session) error {
	t, err := v.getTrigger(s)
	if err != nil {
		return err
	}
	body, err := v.requestBody(s, t)
	if err != nil {
		return err
	}
	if t.Sender != nil {
		return v.sendThroughExecutor(s, t, body)
	}
	request, err := v.newRequest(s, t, body)
	if err != nil {
		return err
	}
	// Do not follow redirects: only the endpoint may receive the token.
	response, err := noredirect.NewClient(nil, sendTimeout).Do(request)
	if err != nil {
		return v.requestError(request, err)
	}
	defer func() { _ = response.Body.Close() }()
	const longest = 1 << 20
	text, err := io.ReadAll(io.LimitReader(response.Body, longest))
	if err != nil {
		return v.requestError(request, err)
	}
	return v.reportResponse(s, response, text)
}

func (v *triggerSendCmd) requestBody(s *session, t api.Trigger) ([]byte, error) {
	switch {
	case v.File != "":
		return s.readInputFile("--file", v.File)
	case v.Data != nil:
		return []byte(*v.Data), nil
	case isNonNullJSON(t.SamplePayload):
		return t.SamplePayload, nil
	default:
		return nil, &usageError{
			"there is nothing to send, and no sample payload",
			"give --data or --file; hookstart trigger send --help has examples",
		}
	}
}

// sendThroughExecutor makes the executor send the request as the node's sender would.
func (v *triggerSendCmd) sendThroughExecutor(s *session, t api.Trigger, body []byte) error {
	text := base64.StdEncoding.EncodeToString(body)
	test := api.SendTest{
		Body:         &text,
		BodyEncoding: "base64",
		ContentType:  v.ContentType,
		DeliveryID:   v.DeliveryID,
		Headers:      map[string][]string{},
	}
	for _, header := range v.Header {
		name, value, err := parseHeader(header)
		if err != nil {
			return err
		}
		test.Headers[name] = append(test.Headers[name], value)
	}
	sent, err := s.client.SendTest(s.ctx, v.Workflow, t.NodeID, test)
	if api.IsCode(err, api.CodeSenderCannotSign) {
		return &hintError{err, "hookstart trigger rerun " + v.Workflow + " " + t.NodeID}
	}
	if err != nil {
		return err
	}
	status := fmt.Sprintf("%d %s", sent.Status, http.StatusText(sent.Status))
	return v.printWebhookResponse(s, status, webhookResponse{
		Success:      sent.Success,
		ExecutionID:  sent.ExecutionID,
		Deduplicated: sent.Deduplicated,
		Filtered:     sent.Filtered,
		Code:         sent.Code,
		Detail:       sent.Detail,
		Outcome:      sent.Outcome,
		RetryAfter:   sent.RetryAfter,
	}, sent.Status)
}

// parseHeader parses the value of a --header flag, such as X-Name:value.
func parseHeader(text string) (name, value string, err error) {
	name, value, ok := strings.Cut(text, ":")
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	if !ok || name == "" {
		err = &usageError{
			fmt.Sprintf("--header must be like X-Name:value, but got %q", text),
			"hookstart trigger send --help",
		}
	}
	return name, value, err
}

func (v *triggerSendCmd) newRequest(s *session, t api.Trigger, body []byte) (*http.Request, error) {
	request, err := http.NewRequestWithContext(s.ctx, http.MethodPost, t.URL, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("the webhook URL cannot be used: %w", noredirect.WithoutURL(err))
	}
	request.Header.Set("User-Agent", "hookstart/"+ops.Version)
	contentType := v.ContentType
	if contentType == "" && execution.ValidJSON(body) {
		contentType = "application/json"
	}
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	if v.DeliveryID != "" {
		name := webhook.PriorityDeliveryIDHeaders()[0]
		if len(t.DeliveryIDHeaders) > 0 {
			name = t.DeliveryIDHeaders[0]
		}
		request.Header.Set(name, v.DeliveryID)
	}
	for _, header := range v.Header {
		name, value, err := parseHeader(header)
		if err != nil {
			return nil, err
		}
		if strings.EqualFold(name, "Host") {
			request.Host = value
			continue
		}
		request.Header.Add(name, value)
	}
	return request, nil
}

// webhookResponse is the endpoint's response, either a success or a refusal.
type webhookResponse struct {
	Success      bool   `json:"success"`
	ExecutionID  string `json:"executionId"`
	Deduplicated bool   `json:"deduplicated"`
	Filtered     bool   `json:"filtered"`
	Code         string `json:"code"`
	Detail       string `json:"detail"`
	Outcome      string `json:"outcome"` // webhook.OutcomeUnknown, or ""
	RetryAfter   int64  `json:"retryAfter"`

	// ExecutionStatus is the execution's status, if the response waited for it.
	ExecutionStatus string          `json:"-"`
	Output          json.RawMessage `json:"output"`
	Error           string          `json:"error"`
	RawBody         []byte          `json:"-"` // the whole response body, if it is the execution's output
}

// decodeResponse decodes a response. ok reports whether the response can be from a webhook
// endpoint.
func decodeResponse(response *http.Response, text []byte) (a webhookResponse, ok bool) {
	id := response.Header.Get(webhook.HeaderExecutionID)
	problem := strings.HasPrefix(response.Header.Get("Content-Type"), "application/problem+json")
	isSuccess := response.StatusCode == http.StatusOK || response.StatusCode == http.StatusAccepted
	if err := json.Unmarshal(text, &a); err == nil &&
		(isSuccess != (a.ExecutionID == "" && !a.Filtered || a.Code != "")) &&
		(a.Success || problem) {
		var run struct {
			Status any `json:"status"` // a number if the body is a problem
		}
		if json.Unmarshal(text, &run) == nil {
			a.ExecutionStatus, _ = run.Status.(string)
		}
		return a, true
	}
	if id == "" {
		return a, false
	}
	return webhookResponse{Success: true, ExecutionID: id, RawBody: text}, true
}

func (v *triggerSendCmd) reportResponse(s *session, response *http.Response, text []byte) error {
	a, ok := decodeResponse(response, text)
	if !ok {
		return &hintError{
			fmt.Errorf("%s answered %s, not as a webhook endpoint does", response.Request.URL.Host,
				response.Status),
			"is it an ingress? Its address is what the ingress's --public-url says",
		}
	}
	if s.lastResponseBody = text; a.RawBody != nil {
		var err error
		if s.lastResponseBody, err = json.Marshal(map[string]any{
			"executionId": a.ExecutionID,
			"status":      response.StatusCode,
			"body":        string(text),
		}); err != nil {
			return err
		}
	}
	return v.printWebhookResponse(s, response.Status, a, response.StatusCode)
}

// printWebhookResponse prints the endpoint's response, and returns an error if it is a refusal.
// status is the status line of the response without the protocol, and code is its status code.
func (v *triggerSendCmd) printWebhookResponse(
	s *session, status string, a webhookResponse, code int,
) error {
	if err := s.printResponse(func() error {
		table := [][]string{{"Status", status}}
		switch {
		case a.Outcome == webhook.OutcomeUnknown:
			table = append(table, []string{
				"Execution", a.ExecutionID + ", which may have been started",
			})
		case a.ExecutionID != "":
			table = append(table, []string{"Execution", a.ExecutionID})
		case a.Filtered:
			table = append(table, []string{
				"Execution", "none: it does not meet the filter (trigger filter)",
			})
		case a.Success:
			table = append(table, []string{"Execution", "none: this is a handshake"})
		}
		if a.Success && a.ExecutionID != "" {
			table = append(table, []string{"Deduplicated", yesNo(a.Deduplicated)})
		}
		if a.ExecutionStatus != "" {
			table = append(table, []string{"Run", a.ExecutionStatus})
		}
		if len(a.Output) > 0 {
			table = append(table, []string{"Output", string(a.Output)})
		}
		if a.Error != "" {
			table = append(table, []string{"Error", a.Error})
		}
		if err := s.printRows(table); err != nil || len(a.RawBody) == 0 {
			return err
		}
		return s.printLine("%s", a.RawBody)
	}); err != nil || a.Success {
		return err
	}
	return v.refusalError(s, &api.Problem{
		Status:     code,
		Code:       a.Code,
		Detail:     a.Detail,
		RetryAfter: a.RetryAfter,
	}, a)
}

// refusalError returns the error for a refused request, with a hint that fits the refusal. a is the
// endpoint's response, and p is the same response as an API error.
func (v *triggerSendCmd) refusalError(s *session, p *api.Problem, a webhookResponse) error {
	hint := ""
	switch webhook.Code(p.Code) {
	case webhook.CodeWorkflowInactive:
		hint = "hookstart workflow activate " + v.Workflow
	case webhook.CodeRateLimited:
		hint = fmt.Sprintf("wait %d s, or raise its limit: hookstart workflow put %s "+
			"--rate-requests N", p.RetryAfter, v.Workflow)
	case webhook.CodeJSONInvalid:
		hint = "correct the JSON, or send it as text: --content-type text/plain"
	case webhook.CodeRunFailed:
		hint = "hookstart execution show " + a.ExecutionID + " says why"
	case webhook.CodeWorkflowNotFound, webhook.CodeTokenInvalid:
		hint = "is the ingress at that address one of this installation? --public-url says where " +
			"senders reach it"
	case webhook.CodeDeliveryIDInvalid:
		hint = "choose a shorter --delivery-id"
	case webhook.CodePlanLimitExceeded, webhook.CodeWebhooksNotInPlan:
		return s.withPlanHint(p, v.Workflow)
	case webhook.CodeUnavailable:
		hint = v.unavailableHint(p, a)
	case webhook.CodeOverloaded, webhook.CodeStorageFull, webhook.CodeBodyUnreadable:
		hint = fmt.Sprintf("nothing was accepted: send it again in %d s", max(1, p.RetryAfter))
	case webhook.CodeSignatureMissing, webhook.CodeSignatureInvalid, webhook.CodeSignatureExpired:
		hint = "hookstart sender show " + v.Workflow + " says why, in a moment"
	case webhook.CodeMethodNotAllowed, webhook.CodeNotFound, webhook.CodeWorkflowIDMissing,
		webhook.CodeTokenMissing, webhook.CodeBodyTooLarge, webhook.CodeInternal:
		// No hint is needed: the problem's detail says what to do.
	}
	return &hintError{p, hint}
}

// unavailableHint returns a hint for a response with the code "unavailable". If the response says
// that the request may have been stored, the hint says how to find out whether it was. If the
// request was not stored, the hint says when to send it again.
func (v *triggerSendCmd) unavailableHint(p *api.Problem, a webhookResponse) string {
	if a.Outcome == webhook.OutcomeUnknown {
		return "hookstart execution show " + a.ExecutionID + " says whether it was started; " +
			retryHint("")
	}
	return fmt.Sprintf("send it again in %d s", max(1, p.RetryAfter))
}

func (v *triggerSendCmd) requestError(request *http.Request, err error) error {
	if strings.Contains(err.Error(), "x509: ") {
		return &hintError{
			fmt.Errorf("the webhook endpoint at %s has a certificate that is not trusted here: %w",
				request.URL.Host, noredirect.WithoutURL(err)),
			"senders may not trust it either; SSL_CERT_FILE=FILE hookstart trigger send … trusts " +
				"an authority of your own",
		}
	}
	return &hintError{
		fmt.Errorf("cannot reach the webhook endpoint at %s://%s: %w", request.URL.Scheme,
			request.URL.Host, noredirect.WithoutURL(err)),
		"is the ingress running there? Its --public-url says where senders reach it; " +
			retryHint(v.DeliveryID),
	}
}

// retryHint returns a hint that explains how to repeat a request that may have been accepted.
func retryHint(deliveryID string) string {
	if deliveryID != "" {
		return "sending it again with the same --delivery-id is safe"
	}
	return "with a --delivery-id, sending it again would be safe"
}
