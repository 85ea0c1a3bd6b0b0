// Package apiclient is a client for the operators' API of an executor.
package apiclient

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/noredirect"
)

// Client calls the operators' API. It is safe for concurrent use. If the API refuses a call, the
// error is an *api.Problem. If there is no response, or it is not from the API, the error is a
// *ConnectionError.
type Client struct {
	baseURL        string
	token          string
	httpClient     *http.Client
	bodyTap        func(body []byte)
	idempotencyKey string // idempotency key of a call; "" means none
	// ifMatch and ifNoneMatch are the If-Match and If-None-Match headers of a call. "" means no
	// header. ifNoneMatch is sent only with PUT.
	ifMatch, ifNoneMatch string
	lastEventID          string // ID of the event after which a stream resumes; "" means none
	// etagOut points to the variable that receives the ETag of each successful response. nil means
	// that no ETag is stored.
	etagOut *string
}

// callTimeout is the timeout of a call. It exceeds every timeout that the API itself enforces.
const callTimeout = time.Minute

// New returns a Client of the API at base, for example http://127.0.0.1:8081. token is the admin
// token or a key.
func New(base, token string) *Client {
	// The API never redirects, and following a redirect could send the token to another server.
	client := noredirect.NewClient(nil, 0)
	return &Client{baseURL: strings.TrimRight(base, "/"), token: token, httpClient: client}
}

// WithBodyTap returns a client that also calls tap with the raw body of each successful response,
// or with the raw data of each event. Unlike the decoded values, these include fields that package
// api does not know.
func (c *Client) WithBodyTap(tap func(body []byte)) *Client {
	tapped := *c
	tapped.bodyTap = tap
	return &tapped
}

// WithTransport returns a client that uses the given transport, for example one that trusts a
// private certificate authority.
func (c *Client) WithTransport(transport http.RoundTripper) *Client {
	over, own := *c, *c.httpClient
	own.Transport = transport
	over.httpClient = &own
	return &over
}

// IfMatch returns a client that changes an object only if the object's ETag is still tag, which the
// caller has got from WithETag. Otherwise, its calls fail with the code api.CodeChangedSince. If
// tag is "", its calls are unconditional.
func (c *Client) IfMatch(tag string) *Client {
	conditional := *c
	conditional.ifMatch = tag
	return &conditional
}

// IfNew returns a client whose PutAccount and PutWorkflow only create objects: if the object
// already exists, they fail with the code api.CodeChangedSince.
func (c *Client) IfNew() *Client {
	conditional := *c
	conditional.ifNoneMatch = "*"
	return &conditional
}

// WithETag returns a client that stores the ETag of each successful response in tag, or "" if the
// response has none. Do not use this client concurrently.
func (c *Client) WithETag(tag *string) *Client {
	noting := *c
	noting.etagOut = tag
	return &noting
}

// Patch is a JSON merge patch: it changes the fields that it contains, and removes those whose
// value is nil.
type Patch map[string]any

// ConnectionError means that the API did not respond, or that the response was not from the API.
type ConnectionError struct{ err error }

// Error describes what failed and what to check.
func (e *ConnectionError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *ConnectionError) Unwrap() error { return e.err }

func newConnectionError(format string, args ...any) error {
	return &ConnectionError{fmt.Errorf(format, args...)}
}

// Page selects a page of a list. The zero value is the first page.
type Page struct {
	Limit int // 0 means the API's default
	// Cursor is the NextCursor of the previous page. "" means the first page.
	Cursor string
}

// Items iterates over all items of a list, which fetch returns page by page. The iteration ends
// after the first error.
func Items[T any](fetch func(Page) (api.List[T], error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for page := (Page{Limit: api.MaxLimit}); ; {
			part, err := fetch(page)
			for _, item := range part.Items {
				if !yield(item, nil) {
					return
				}
			}
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			if page.Cursor = part.NextCursor; page.Cursor == "" {
				return
			}
		}
	}
}

// ExecutionFilter selects executions. Fields that are zero are ignored.
type ExecutionFilter struct {
	// AccountID and WorkflowID select by exact ID, not by prefix.
	AccountID, WorkflowID string
	// Status is a status of an execution, such as api.StatusQueued.
	Status string
	// Source is api.SourceWebhook, api.SourceRerun or api.SourceEvent.
	Source string
	// DeliveryID selects the executions of deliveries with this ID, as the sender gave it.
	DeliveryID string
	// Since and Until select the executions that were accepted at Since or later, and before Until.
	Since, Until time.Time
}

// Plans returns one page of the plans that accounts can have.
func (c *Client) Plans(ctx context.Context, page Page) (api.List[api.Plan], error) {
	return list[api.Plan](ctx, c, "/plans", page, nil)
}

// PutAccount creates or replaces an account.
func (c *Client) PutAccount(
	ctx context.Context, id string, put api.PutAccount,
) (api.Account, error) {
	return send[api.Account](ctx, c, http.MethodPut, "/accounts/"+url.PathEscape(id), put)
}

// PatchAccount changes the fields of an api.PutAccount that are in patch.
func (c *Client) PatchAccount(ctx context.Context, id string, patch Patch) (api.Account, error) {
	return send[api.Account](ctx, c, http.MethodPatch, "/accounts/"+url.PathEscape(id), patch)
}

// DeleteAccount deletes an account. It fails if the account has workflows or keys.
func (c *Client) DeleteAccount(ctx context.Context, id string) error {
	return c.delete(ctx, "/accounts/"+url.PathEscape(id))
}

// Events returns the settings of an account's operator events, and the ongoing conditions that
// these events have reported.
func (c *Client) Events(ctx context.Context, accountID string) (api.Events, error) {
	return get[api.Events](ctx, c, "/accounts/"+url.PathEscape(accountID)+"/events")
}

// PutEvents sets which workflow an account's operator events start.
func (c *Client) PutEvents(
	ctx context.Context, accountID string, put api.PutEvents,
) (api.Events, error) {
	return send[api.Events](ctx, c, http.MethodPut,
		"/accounts/"+url.PathEscape(accountID)+"/events", put)
}

// DeleteEvents removes the settings of an account's operator events, so that they no longer start a
// workflow.
func (c *Client) DeleteEvents(ctx context.Context, accountID string) error {
	return c.delete(ctx, "/accounts/"+url.PathEscape(accountID)+"/events")
}

// Account returns the account with the given ID. It fails with the code api.CodeNotFound if there
// is no such account, or if the caller may not see it.
func (c *Client) Account(ctx context.Context, id string) (api.Account, error) {
	return get[api.Account](ctx, c, "/accounts/"+url.PathEscape(id))
}

// Accounts returns one page of the accounts that the caller may see.
func (c *Client) Accounts(ctx context.Context, page Page) (api.List[api.Account], error) {
	return list[api.Account](ctx, c, "/accounts", page, nil)
}

// PutWorkflow creates an inactive workflow, or replaces an existing one.
func (c *Client) PutWorkflow(
	ctx context.Context, id string, put api.PutWorkflow,
) (api.Workflow, error) {
	return send[api.Workflow](ctx, c, http.MethodPut, workflowPath(id), put)
}

// PatchWorkflow changes the fields of an api.PutWorkflow that are in patch. The triggers are
// replaced as a whole.
func (c *Client) PatchWorkflow(ctx context.Context, id string, patch Patch) (api.Workflow, error) {
	return send[api.Workflow](ctx, c, http.MethodPatch, workflowPath(id), patch)
}

// PutWorkflowJSON is like PutWorkflow for an api.PutWorkflow that is already encoded. Only the API
// validates it.
func (c *Client) PutWorkflowJSON(ctx context.Context, id string, put []byte) (api.Workflow, error) {
	return send[api.Workflow](ctx, c, http.MethodPut, workflowPath(id), rawJSON(put))
}

// Workflow returns the workflow with the given ID. It fails with the code api.CodeNotFound if there
// is no such workflow, or if the caller may not see it.
func (c *Client) Workflow(ctx context.Context, id string) (api.Workflow, error) {
	return get[api.Workflow](ctx, c, workflowPath(id))
}

// Workflows lists the workflows of an account, or all workflows if accountID is empty.
func (c *Client) Workflows(
	ctx context.Context, accountID string, page Page,
) (api.List[api.Workflow], error) {
	return list[api.Workflow](ctx, c, "/workflows", page, queryParameters{"accountId": accountID})
}

// DeleteWorkflow deletes a workflow with its tokens. The records of its executions stay.
func (c *Client) DeleteWorkflow(ctx context.Context, id string) error {
	return c.delete(ctx, workflowPath(id))
}

// Activate activates a workflow, so that its webhooks start executions.
func (c *Client) Activate(ctx context.Context, id string) (api.Workflow, error) {
	return send[api.Workflow](ctx, c, http.MethodPost, workflowPath(id)+"/activate", nil)
}

// Deactivate deactivates a workflow, so that its webhooks no longer start executions.
func (c *Client) Deactivate(ctx context.Context, id string) (api.Workflow, error) {
	return send[api.Workflow](ctx, c, http.MethodPost, workflowPath(id)+"/deactivate", nil)
}

// Refusals returns how many requests of a workflow were refused since the given time, counted by
// code. A zero time means the last 24 hours.
func (c *Client) Refusals(
	ctx context.Context, workflowID string, since time.Time, page Page,
) (api.List[api.Refusal], error) {
	return list[api.Refusal](ctx, c, workflowPath(workflowID)+"/refusals", page, queryParameters{
		"since": timeParam(since),
	})
}

// AllRefusals returns how many requests of all workflows were refused since the given time, counted
// by workflow and code, most recent refusal first. A zero time means the last 24 hours.
func (c *Client) AllRefusals(
	ctx context.Context, since time.Time, page Page,
) (api.List[api.WorkflowRefusal], error) {
	return list[api.WorkflowRefusal](ctx, c, "/refusals", page,
		queryParameters{"since": timeParam(since)})
}

// Queues lists the queues, with the executions waiting in each and the groups that consume them.
func (c *Client) Queues(ctx context.Context, page Page) (api.List[api.Queue], error) {
	return list[api.Queue](ctx, c, "/queues", page, nil)
}

// Members lists the running executors and ingresses.
func (c *Client) Members(ctx context.Context) (api.Members, error) {
	return get[api.Members](ctx, c, "/members")
}

// Size returns the size of the installation and its requests in the last week.
func (c *Client) Size(ctx context.Context) (api.Size, error) {
	return get[api.Size](ctx, c, "/size")
}

// PauseQueue stops the delivery of new executions to all groups of a queue until the given time. If
// the time is zero, the pause lasts until ResumeQueue is called.
func (c *Client) PauseQueue(ctx context.Context, queue string, until time.Time) (api.Queue, error) {
	return send[api.Queue](ctx, c, http.MethodPost, "/queues/"+url.PathEscape(queue)+"/pause",
		api.PauseQueue{Until: until})
}

// ResumeQueue ends the pause of a queue, so that its groups of runners receive new executions
// again.
func (c *Client) ResumeQueue(ctx context.Context, queue string) (api.Queue, error) {
	return send[api.Queue](ctx, c, http.MethodPost, "/queues/"+url.PathEscape(queue)+"/resume", nil)
}

// SetQueueStream moves a queue to its own stream, or changes the settings of that stream. It
// returns when the queue has moved.
func (c *Client) SetQueueStream(
	ctx context.Context, queue string, put api.PutQueueStream,
) (api.Queue, error) {
	return send[api.Queue](ctx, c, http.MethodPut, "/queues/"+url.PathEscape(queue)+"/stream", put)
}

// DropQueueStream moves a queue back to the shared stream. It returns when the queue has moved.
func (c *Client) DropQueueStream(ctx context.Context, queue string) error {
	return c.delete(ctx, "/queues/"+url.PathEscape(queue)+"/stream")
}

// SetQueueGroup sets the maximum number of executions that a group of runners may have in flight.
// nil means no limit.
func (c *Client) SetQueueGroup(
	ctx context.Context, queue, group string, maxInFlight *int64,
) (api.QueueGroup, error) {
	return send[api.QueueGroup](ctx, c, http.MethodPut,
		"/queues/"+url.PathEscape(queue)+"/groups/"+url.PathEscape(group), api.PutQueueGroup{
			MaxInFlight: maxInFlight,
		})
}

// PublicURL returns the URL at which senders reach the ingresses, and the result of checking it.
func (c *Client) PublicURL(ctx context.Context) (api.PublicURL, error) {
	return get[api.PublicURL](ctx, c, "/public-url")
}

// Trigger returns a trigger node with its URL and tokens.
func (c *Client) Trigger(ctx context.Context, workflowID, nodeID string) (api.Trigger, error) {
	return get[api.Trigger](ctx, c, triggerPath(workflowID, nodeID))
}

// PatchTrigger changes the fields of an api.TriggerSettings that are in patch.
func (c *Client) PatchTrigger(
	ctx context.Context, workflowID, nodeID string, patch Patch,
) (api.Trigger, error) {
	return send[api.Trigger](ctx, c, http.MethodPatch, triggerPath(workflowID, nodeID), patch)
}

// TryOrderKey tests an order key setting: it counts how many of the last requests to a node have a
// value at place, such as "ptr:/order/id". If place is "", it tests the node's current setting.
func (c *Client) TryOrderKey(
	ctx context.Context, workflowID, nodeID, place string,
) (result api.OrderKeyTrial, err error) {
	query := queryParameters{"orderKey": place}.query()
	err = c.call(ctx, http.MethodGet, triggerPath(workflowID, nodeID)+"/order-key-trial", query,
		nil, &result)
	return result, err
}

// SetSamplePayload sets a node's sample payload. sample is a JSON text.
func (c *Client) SetSamplePayload(
	ctx context.Context, workflowID, nodeID string, sample []byte,
) (api.Trigger, error) {
	return send[api.Trigger](ctx, c, http.MethodPut,
		triggerPath(workflowID, nodeID)+"/sample-payload", rawJSON(sample))
}

// RotateToken creates a new token for a node. The node's current tokens stay valid for keepOld.
func (c *Client) RotateToken(
	ctx context.Context, workflowID, nodeID string, keepOld time.Duration,
) (api.Trigger, error) {
	rotate := api.RotateToken{KeepOldForSeconds: int64(keepOld / time.Second)}
	return send[api.Trigger](ctx, c, http.MethodPost,
		triggerPath(workflowID, nodeID)+"/rotate-token", rotate)
}

// RerunTrigger starts an execution with a node's sample payload.
func (c *Client) RerunTrigger(ctx context.Context, workflowID, nodeID string) (api.Started, error) {
	return send[api.Started](ctx, c, http.MethodPost, triggerPath(workflowID, nodeID)+"/rerun", nil)
}

// SendTest makes the executor send a test request to a node's webhook URL, as the node's sender
// would send it. If the endpoint refuses the request, SendTest returns the response without an
// error.
func (c *Client) SendTest(
	ctx context.Context, workflowID, nodeID string, test api.SendTest,
) (api.SentTest, error) {
	return send[api.SentTest](ctx, c, http.MethodPost, triggerPath(workflowID, nodeID)+"/send-test",
		test)
}

// RerunExecution starts a new execution of the trigger node that started the given execution, with
// the node's current sample payload.
func (c *Client) RerunExecution(ctx context.Context, id string) (api.Started, error) {
	return send[api.Started](ctx, c, http.MethodPost, "/executions/"+url.PathEscape(id)+"/rerun",
		nil)
}

// CancelExecution cancels an unfinished execution.
func (c *Client) CancelExecution(ctx context.Context, id string) (api.Execution, error) {
	return send[api.Execution](ctx, c, http.MethodPost, "/executions/"+url.PathEscape(id)+"/cancel",
		nil)
}

// CancelExecutions cancels the selected executions that have not finished.
func (c *Client) CancelExecutions(
	ctx context.Context, which api.CancelExecutions,
) (api.Canceled, error) {
	return send[api.Canceled](ctx, c, http.MethodPost, "/executions/cancel", which)
}

// RequeueExecution starts a failed execution again with its original body. It is idempotent.
func (c *Client) RequeueExecution(ctx context.Context, id string) (api.Started, error) {
	return send[api.Started](ctx, c, http.MethodPost, "/executions/"+url.PathEscape(id)+"/requeue",
		nil)
}

// ReplayExecution starts an execution with the body, headers and query of another execution. It is
// idempotent if key is not empty.
func (c *Client) ReplayExecution(ctx context.Context, id, key string) (api.Started, error) {
	return send[api.Started](ctx, c.withIdempotencyKey(key), http.MethodPost,
		"/executions/"+url.PathEscape(id)+"/replay", nil)
}

// ReplayRejected replays the selected rejected executions. Repeated calls with the same idempotency
// key, which may be empty, replay each execution at most once.
func (c *Client) ReplayRejected(
	ctx context.Context, which api.ReplayRejected, key string,
) (api.Replayed, error) {
	return send[api.Replayed](ctx, c.withIdempotencyKey(key), http.MethodPost, "/executions/replay",
		which)
}

// withIdempotencyKey returns a client that sends an idempotency key with each call, or none if key
// is "".
func (c *Client) withIdempotencyKey(key string) *Client {
	with := *c
	with.idempotencyKey = key
	return &with
}

// RequeueDeadLetters requeues the selected dead letters. Repeated calls requeue each dead letter
// only once.
func (c *Client) RequeueDeadLetters(
	ctx context.Context, which api.SelectDeadLetters,
) (api.Requeued, error) {
	return send[api.Requeued](ctx, c, http.MethodPost, "/dead-letters/requeue", which)
}

// DismissDeadLetters removes the selected dead letters from the list.
func (c *Client) DismissDeadLetters(
	ctx context.Context, which api.SelectDeadLetters,
) (api.Dismissed, error) {
	return send[api.Dismissed](ctx, c, http.MethodPost, "/dead-letters/dismiss", which)
}

// DeadLetterFilter selects dead letters. Fields that are zero are ignored.
type DeadLetterFilter struct {
	// WorkflowID selects by exact ID, not by prefix.
	WorkflowID string
	// Reason selects the dead letters whose reason contains this text. It is case-sensitive.
	Reason string
	// Since and Until select the dead letters whose At is Since or later, and before Until.
	Since, Until time.Time
}

// DeadLetters returns one page of the dead letters that the filter selects, newest first.
func (c *Client) DeadLetters(
	ctx context.Context, filter DeadLetterFilter, page Page,
) (api.List[api.DeadLetter], error) {
	return list[api.DeadLetter](ctx, c, "/dead-letters", page, queryParameters{
		"workflowId": filter.WorkflowID,
		"reason":     filter.Reason,
		"since":      timeParam(filter.Since),
		"until":      timeParam(filter.Until),
	})
}

// Executions returns one page of the executions that the filter selects, newest first.
func (c *Client) Executions(
	ctx context.Context, filter ExecutionFilter, page Page,
) (api.List[api.Execution], error) {
	return list[api.Execution](ctx, c, "/executions", page, queryParameters{
		"accountId":  filter.AccountID,
		"workflowId": filter.WorkflowID,
		"status":     filter.Status,
		"source":     filter.Source,
		"deliveryId": filter.DeliveryID,
		"since":      timeParam(filter.Since),
		"until":      timeParam(filter.Until),
	})
}

// Execution returns the execution with the given ID, with its input and output. It fails with the
// code api.CodeNotFound if there is no such execution, or if the caller may not see it.
func (c *Client) Execution(ctx context.Context, id string) (api.ExecutionDetail, error) {
	return get[api.ExecutionDetail](ctx, c, "/executions/"+url.PathEscape(id))
}

func workflowPath(id string) string { return "/workflows/" + url.PathEscape(id) }

func triggerPath(workflowID, nodeID string) string {
	return workflowPath(workflowID) + "/triggers/" + url.PathEscape(nodeID)
}

// rawJSON is a request body that is already JSON. It is sent unchanged, because encoding/json would
// compact it and reject deep nesting.
type rawJSON []byte

func encodeBody(body any) (io.Reader, error) {
	switch body := body.(type) {
	case nil:
		return nil, nil
	case rawJSON:
		return bytes.NewReader(body), nil
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encode the request: %w", err)
	}
	return bytes.NewReader(text), nil
}

// queryParameters holds query parameters. Empty values are omitted from the query.
type queryParameters map[string]string

func (p queryParameters) query() url.Values {
	q := url.Values{}
	for name, value := range p {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q
}

// timeParam formats a time as a query parameter, or returns "" for the zero time.
func timeParam(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

func get[T any](ctx context.Context, c *Client, path string) (result T, err error) {
	err = c.call(ctx, http.MethodGet, path, nil, nil, &result)
	return result, err
}

func list[T any](
	ctx context.Context, c *Client, path string, page Page, filter queryParameters,
) (result api.List[T], err error) {
	q := filter.query()
	if page.Limit != 0 {
		q.Set("limit", strconv.Itoa(page.Limit))
	}
	if page.Cursor != "" {
		q.Set("cursor", page.Cursor)
	}
	err = c.call(ctx, http.MethodGet, path, q, nil, &result)
	return result, err
}

// send makes a call with body encoded as JSON, or without a body if body is nil, and returns the
// decoded response.
func send[T any](
	ctx context.Context, c *Client, method, path string, body any,
) (result T, err error) {
	err = c.call(ctx, method, path, nil, body, &result)
	return result, err
}

func (c *Client) delete(ctx context.Context, path string) error {
	return c.call(ctx, http.MethodDelete, path, nil, nil, nil)
}

// call makes a call with body encoded as JSON, or without a body if body is nil. It decodes the
// response into result, unless result is nil.
func (c *Client) call(
	ctx context.Context, method, path string, query url.Values, body, result any,
) error {
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout,
		fmt.Errorf("no answer within %s", callTimeout))
	defer cancel()
	sent, err := encodeBody(body)
	if err != nil {
		return err
	}
	response, err := c.sendRequest(ctx, method, path, query, sent)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return newConnectionError("the answer of %s to %s %s broke off: %w", c.baseURL, method,
			path, err)
	}
	if result != nil {
		if err := Decode(text, result); err != nil {
			return newConnectionError("the answer of %s to %s %s is not what the operators' API "+
				"answers (%w); is it the executor's address?", c.baseURL, method, path, err)
		}
	}
	if c.bodyTap != nil {
		c.bodyTap(text)
	}
	return nil
}

// sendRequest makes a call and returns the response if its status is 2xx. Otherwise, it returns the
// *api.Problem in the response as an error, or a *ConnectionError if there is none.
func (c *Client) sendRequest(
	ctx context.Context, method, path string, query url.Values, body io.Reader,
) (*http.Response, error) {
	target := c.baseURL + api.PathPrefix + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return nil, newConnectionError("the API's address %q: %w", c.baseURL, causeOf(ctx, err))
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.idempotencyKey != "" {
		request.Header.Set("Idempotency-Key", c.idempotencyKey)
	}
	if c.ifMatch != "" {
		request.Header.Set("If-Match", c.ifMatch)
	}
	if c.ifNoneMatch != "" && method == http.MethodPut {
		request.Header.Set("If-None-Match", c.ifNoneMatch)
	}
	if c.lastEventID != "" {
		request.Header.Set("Last-Event-ID", c.lastEventID)
	}
	response, err := c.httpClient.Do(request)
	if err != nil {
		return nil, newConnectionError("cannot reach the operators' API at %s: %w", c.baseURL,
			causeOf(ctx, err))
	}
	if response.StatusCode/100 == 2 {
		if c.etagOut != nil {
			*c.etagOut = response.Header.Get("ETag")
		}
		return response, nil
	}
	defer func() { _ = response.Body.Close() }()
	return nil, responseError(c.baseURL, response)
}

// causeOf returns the reason why ctx has ended. If ctx has not ended, it returns err, but without
// the URL at its beginning, because the caller's message already contains the address.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return noredirect.WithoutURL(err)
}

func responseError(base string, response *http.Response) error {
	var p api.Problem
	mediaType, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if mediaType != "application/problem+json" ||
		json.NewDecoder(io.LimitReader(response.Body, 1<<20)).Decode(&p) != nil {
		return newConnectionError("%s answered %s, not as the operators' API does; is it the "+
			"executor's address?", base, response.Status)
	}
	return &p
}
