// Package apiclient calls the operators' API of an executor.
package apiclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
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
)

// Client calls the API. It is safe for concurrent use. Its errors are either an *api.Problem, which
// is the API's answer, or a *ConnectionError.
type Client struct {
	base  string
	token string
	http  *http.Client
	tap   func(body []byte)
	key   string // idempotency key of a call that must not start anything twice
	// ifMatch and ifNoneMatch are the conditions of a call. "" means that there is none.
	ifMatch, ifNoneMatch string
	// etag receives the ETag of each answer. nil means that it is not stored.
	etag *string
}

// callTimeout is the timeout of a call. It is longer than the API takes to answer any call with a
// timeout of its own.
const callTimeout = time.Minute

// New returns a Client of the API at base, for example http://127.0.0.1:8081, with the admin token
// or a key.
func New(base, token string) *Client {
	return &Client{base: strings.TrimRight(base, "/"), token: token, http: &http.Client{
		// The API never redirects, and a redirect would send the token to another server.
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}}
}

// WithTrace returns a client that also passes to tap the body of each successful answer, or the
// data of each event, with unknown members.
func (c *Client) WithTrace(tap func(body []byte)) *Client {
	tapped := *c
	tapped.tap = tap
	return &tapped
}

// WithTransport returns a client that uses a transport of the caller, for example one that trusts a
// private certificate authority.
func (c *Client) WithTransport(transport http.RoundTripper) *Client {
	over, own := *c, *c.http
	own.Transport = transport
	over.http = &own
	return &over
}

// IfMatch returns a client whose calls change only the version with a tag that WithETag has
// returned. A change of another version fails with the problem code changed_since. "" means any
// version.
func (c *Client) IfMatch(tag string) *Client {
	conditional := *c
	conditional.ifMatch = tag
	return &conditional
}

// IfNew returns a client whose PutAccount and PutWorkflow create objects, but replace none: if the
// object exists already, the call fails with the problem code changed_since.
func (c *Client) IfNew() *Client {
	conditional := *c
	conditional.ifNoneMatch = "*"
	return &conditional
}

// WithETag returns a client that stores the ETag of each answer in tag, or "" if the answer has
// none. The calls of such a client must not be concurrent.
func (c *Client) WithETag(tag *string) *Client {
	noting := *c
	noting.etag = tag
	return &noting
}

// Patch is a JSON merge patch: members that are not named stay unchanged, and nil removes a member.
type Patch map[string]any

// ConnectionError means that the API did not answer, or that another server did.
type ConnectionError struct{ err error }

// Error says what failed and what to check.
func (e *ConnectionError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *ConnectionError) Unwrap() error { return e.err }

func noConnection(format string, args ...any) error {
	return &ConnectionError{fmt.Errorf(format, args...)}
}

// Page selects a part of a list. Its zero value is the beginning.
type Page struct {
	Limit int // 0 means the API's default
	// Cursor is the NextCursor of the page before. "" means the first page.
	Cursor string
}

// Items iterates over a list that fetch returns page by page. After an error, the iteration ends.
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

// ExecutionFilter selects executions. Zero fields do not filter.
type ExecutionFilter struct {
	// AccountID and WorkflowID are complete IDs.
	AccountID, WorkflowID string
	// Status is one of the constants api.StatusQueued, api.StatusRunning and so on.
	Status string
	// Source is api.SourceWebhook, api.SourceRerun or api.SourceEvent.
	Source string
	// DeliveryID is the sender's ID of the delivery.
	DeliveryID string
	// Since and Until select executions that were accepted at Since or later, and before Until.
	Since, Until time.Time
}

// Plans lists the plan catalog.
func (c *Client) Plans(ctx context.Context) (api.List[api.Plan], error) {
	return get[api.List[api.Plan]](ctx, c, "/plans")
}

// PutAccount creates or replaces an account.
func (c *Client) PutAccount(
	ctx context.Context, id string, put api.PutAccount,
) (api.Account, error) {
	return send[api.Account](ctx, c, http.MethodPut, "/accounts/"+url.PathEscape(id), put)
}

// PatchAccount changes the members of an api.PutAccount that patch names.
func (c *Client) PatchAccount(ctx context.Context, id string, patch Patch) (api.Account, error) {
	return send[api.Account](ctx, c, http.MethodPatch, "/accounts/"+url.PathEscape(id), patch)
}

// DeleteAccount deletes an account without workflows and keys.
func (c *Client) DeleteAccount(ctx context.Context, id string) error {
	return c.delete(ctx, "/accounts/"+url.PathEscape(id))
}

// Events returns the setting of an account's operator events.
func (c *Client) Events(ctx context.Context, accountID string) (api.Events, error) {
	return get[api.Events](ctx, c, "/accounts/"+url.PathEscape(accountID)+"/events")
}

// PutEvents sets the workflow that an account's operator events start.
func (c *Client) PutEvents(
	ctx context.Context, accountID string, put api.PutEvents,
) (api.Events, error) {
	return send[api.Events](ctx, c, http.MethodPut,
		"/accounts/"+url.PathEscape(accountID)+"/events", put)
}

// DeleteEvents makes an account's operator events start no workflow.
func (c *Client) DeleteEvents(ctx context.Context, accountID string) error {
	return c.delete(ctx, "/accounts/"+url.PathEscape(accountID)+"/events")
}

// Account returns one account.
func (c *Client) Account(ctx context.Context, id string) (api.Account, error) {
	return get[api.Account](ctx, c, "/accounts/"+url.PathEscape(id))
}

// Accounts lists accounts.
func (c *Client) Accounts(ctx context.Context, page Page) (api.List[api.Account], error) {
	return list[api.Account](ctx, c, "/accounts", page, nil)
}

// PutWorkflow creates an inactive workflow, or replaces a workflow.
func (c *Client) PutWorkflow(
	ctx context.Context, id string, put api.PutWorkflow,
) (api.Workflow, error) {
	return send[api.Workflow](ctx, c, http.MethodPut, workflow(id), put)
}

// PatchWorkflow changes the members of an api.PutWorkflow that patch names. Its triggers are
// replaced as a whole.
func (c *Client) PatchWorkflow(ctx context.Context, id string, patch Patch) (api.Workflow, error) {
	return send[api.Workflow](ctx, c, http.MethodPatch, workflow(id), patch)
}

// PutWorkflowJSON does the same as PutWorkflow with an api.PutWorkflow that is JSON already. Only
// the API checks it.
func (c *Client) PutWorkflowJSON(ctx context.Context, id string, put []byte) (api.Workflow, error) {
	return send[api.Workflow](ctx, c, http.MethodPut, workflow(id), asIs(put))
}

// Workflow returns one workflow.
func (c *Client) Workflow(ctx context.Context, id string) (api.Workflow, error) {
	return get[api.Workflow](ctx, c, workflow(id))
}

// Workflows lists the workflows of an account, or all workflows if accountID is empty.
func (c *Client) Workflows(
	ctx context.Context, accountID string, page Page,
) (api.List[api.Workflow], error) {
	return list[api.Workflow](ctx, c, "/workflows", page, parameters{"accountId": accountID})
}

// DeleteWorkflow deletes a workflow.
func (c *Client) DeleteWorkflow(ctx context.Context, id string) error {
	return c.delete(ctx, workflow(id))
}

// Activate lets a workflow's webhooks start executions.
func (c *Client) Activate(ctx context.Context, id string) (api.Workflow, error) {
	return send[api.Workflow](ctx, c, http.MethodPost, workflow(id)+"/activate", nil)
}

// Deactivate stops a workflow's webhooks from starting executions.
func (c *Client) Deactivate(ctx context.Context, id string) (api.Workflow, error) {
	return send[api.Workflow](ctx, c, http.MethodPost, workflow(id)+"/deactivate", nil)
}

// Refusals counts a workflow's refused requests since a time, by code. The zero time means the last
// 24 hours.
func (c *Client) Refusals(
	ctx context.Context, workflowID string, since time.Time, page Page,
) (api.List[api.Refusal], error) {
	return list[api.Refusal](ctx, c, workflow(workflowID)+"/refusals", page, parameters{
		"since": at(since),
	})
}

// AllRefusals counts the refused requests of all workflows, by workflow and code, the last refused
// first.
func (c *Client) AllRefusals(
	ctx context.Context, since time.Time, page Page,
) (api.List[api.WorkflowRefusal], error) {
	return list[api.WorkflowRefusal](ctx, c, "/refusals", page, parameters{"since": at(since)})
}

// Queues lists the queues, with the executions that wait in each, and the runners that take them.
func (c *Client) Queues(ctx context.Context, page Page) (api.List[api.Queue], error) {
	return list[api.Queue](ctx, c, "/queues", page, nil)
}

// Members lists the running executors and ingresses.
func (c *Client) Members(ctx context.Context) (api.Members, error) {
	return get[api.Members](ctx, c, "/members")
}

// Size returns the size of the installation, and its requests of the last week.
func (c *Client) Size(ctx context.Context) (api.Size, error) {
	return get[api.Size](ctx, c, "/size")
}

// PauseQueue stops the delivery of new executions to all groups of a queue, until a time. The zero
// time means until ResumeQueue.
func (c *Client) PauseQueue(ctx context.Context, queue string, until time.Time) (api.Queue, error) {
	return send[api.Queue](ctx, c, http.MethodPost, "/queues/"+url.PathEscape(queue)+"/pause",
		api.PauseQueue{Until: until})
}

// ResumeQueue ends the pause of a queue.
func (c *Client) ResumeQueue(ctx context.Context, queue string) (api.Queue, error) {
	return send[api.Queue](ctx, c, http.MethodPost, "/queues/"+url.PathEscape(queue)+"/resume", nil)
}

// SetQueueStream gives a queue a stream of its own, or changes the stream's settings. It returns
// when the queue has moved.
func (c *Client) SetQueueStream(
	ctx context.Context, queue string, put api.PutQueueStream,
) (api.Queue, error) {
	return send[api.Queue](ctx, c, http.MethodPut, "/queues/"+url.PathEscape(queue)+"/stream", put)
}

// DropQueueStream moves a queue back to the stream that all queues share. It returns when the queue
// has moved.
func (c *Client) DropQueueStream(ctx context.Context, queue string) error {
	return c.delete(ctx, "/queues/"+url.PathEscape(queue)+"/stream")
}

// SetQueueGroup sets how many executions a group of runners may have in flight. nil means that
// there is no limit.
func (c *Client) SetQueueGroup(
	ctx context.Context, queue, group string, maxInFlight *int64,
) (api.QueueGroup, error) {
	return send[api.QueueGroup](ctx, c, http.MethodPut,
		"/queues/"+url.PathEscape(queue)+"/groups/"+url.PathEscape(group), api.PutQueueGroup{
			MaxInFlight: maxInFlight,
		})
}

// PublicURL checks where the public URL leads.
func (c *Client) PublicURL(ctx context.Context) (api.PublicURL, error) {
	return get[api.PublicURL](ctx, c, "/public-url")
}

// Trigger returns a trigger node with its URL and tokens.
func (c *Client) Trigger(ctx context.Context, workflowID, nodeID string) (api.Trigger, error) {
	return get[api.Trigger](ctx, c, trigger(workflowID, nodeID))
}

// PatchTrigger changes the members of an api.TriggerSettings that patch names.
func (c *Client) PatchTrigger(
	ctx context.Context, workflowID, nodeID string, patch Patch,
) (api.Trigger, error) {
	return send[api.Trigger](ctx, c, http.MethodPatch, trigger(workflowID, nodeID), patch)
}

// SetSamplePayload sets a node's sample payload, which is one JSON text.
func (c *Client) SetSamplePayload(
	ctx context.Context, workflowID, nodeID string, sample []byte,
) (api.Trigger, error) {
	return send[api.Trigger](ctx, c, http.MethodPut, trigger(workflowID, nodeID)+"/sample-payload",
		asIs(sample))
}

// RotateToken gives a node a new token.
func (c *Client) RotateToken(
	ctx context.Context, workflowID, nodeID string, keepOld time.Duration,
) (api.Trigger, error) {
	rotate := api.RotateToken{KeepOldForSeconds: int64(keepOld / time.Second)}
	return send[api.Trigger](ctx, c, http.MethodPost, trigger(workflowID, nodeID)+"/rotate-token",
		rotate)
}

// RerunTrigger starts an execution with a node's sample payload.
func (c *Client) RerunTrigger(ctx context.Context, workflowID, nodeID string) (api.Started, error) {
	return send[api.Started](ctx, c, http.MethodPost, trigger(workflowID, nodeID)+"/rerun", nil)
}

// SendTest lets the executor post a request to a node's webhook URL as its sender would. A refusal
// by the endpoint is not an error.
func (c *Client) SendTest(
	ctx context.Context, workflowID, nodeID string, test api.SendTest,
) (api.SentTest, error) {
	return send[api.SentTest](ctx, c, http.MethodPost, trigger(workflowID, nodeID)+"/send-test",
		test)
}

// RerunExecution starts the trigger of an execution again, with its sample payload.
func (c *Client) RerunExecution(ctx context.Context, id string) (api.Started, error) {
	return send[api.Started](ctx, c, http.MethodPost, "/executions/"+url.PathEscape(id)+"/rerun",
		nil)
}

// CancelExecution cancels an execution that has not ended.
func (c *Client) CancelExecution(ctx context.Context, id string) (api.Execution, error) {
	return send[api.Execution](ctx, c, http.MethodPost, "/executions/"+url.PathEscape(id)+"/cancel",
		nil)
}

// CancelExecutions cancels many executions that have not ended.
func (c *Client) CancelExecutions(
	ctx context.Context, which api.CancelExecutions,
) (api.Canceled, error) {
	return send[api.Canceled](ctx, c, http.MethodPost, "/executions/cancel", which)
}

// RequeueExecution starts a failed execution again, with its original body. It is idempotent.
func (c *Client) RequeueExecution(ctx context.Context, id string) (api.Started, error) {
	return send[api.Started](ctx, c, http.MethodPost, "/executions/"+url.PathEscape(id)+"/requeue",
		nil)
}

// ReplayExecution starts an execution with the original body, headers and query of another
// execution. With a key, it is idempotent.
func (c *Client) ReplayExecution(ctx context.Context, id, key string) (api.Started, error) {
	return send[api.Started](ctx, c.withKey(key), http.MethodPost,
		"/executions/"+url.PathEscape(id)+"/replay", nil)
}

// ReplayRejected replays rejected executions, each once per key. "" counts as one key, too: without
// a key, each execution is replayed once.
func (c *Client) ReplayRejected(
	ctx context.Context, which api.ReplayRejected, key string,
) (api.Replayed, error) {
	return send[api.Replayed](ctx, c.withKey(key), http.MethodPost, "/executions/replay", which)
}

// withKey returns a client whose calls have an idempotency key.
func (c *Client) withKey(key string) *Client {
	with := *c
	with.key = key
	return &with
}

// RequeueDeadLetters requeues many dead letters. Repeated calls requeue each dead letter once.
func (c *Client) RequeueDeadLetters(
	ctx context.Context, which api.SelectDeadLetters,
) (api.Requeued, error) {
	return send[api.Requeued](ctx, c, http.MethodPost, "/dead-letters/requeue", which)
}

// DismissDeadLetters removes many dead letters from the list.
func (c *Client) DismissDeadLetters(
	ctx context.Context, which api.SelectDeadLetters,
) (api.Dismissed, error) {
	return send[api.Dismissed](ctx, c, http.MethodPost, "/dead-letters/dismiss", which)
}

// DeadLetterFilter selects dead letters. Zero fields do not filter.
type DeadLetterFilter struct {
	// WorkflowID is a complete ID.
	WorkflowID string
	// Reason is a part of the reason. Upper and lower case differ.
	Reason string
	// Since and Until select dead letters whose At is Since or later, and before Until.
	Since, Until time.Time
}

// DeadLetters lists dead letters, the newest first.
func (c *Client) DeadLetters(
	ctx context.Context, filter DeadLetterFilter, page Page,
) (api.List[api.DeadLetter], error) {
	return list[api.DeadLetter](ctx, c, "/dead-letters", page, parameters{
		"workflowId": filter.WorkflowID,
		"reason":     filter.Reason,
		"since":      at(filter.Since),
		"until":      at(filter.Until),
	})
}

// Executions lists executions, the newest first.
func (c *Client) Executions(
	ctx context.Context, filter ExecutionFilter, page Page,
) (api.List[api.Execution], error) {
	return list[api.Execution](ctx, c, "/executions", page, parameters{
		"accountId":  filter.AccountID,
		"workflowId": filter.WorkflowID,
		"status":     filter.Status,
		"source":     filter.Source,
		"deliveryId": filter.DeliveryID,
		"since":      at(filter.Since),
		"until":      at(filter.Until),
	})
}

// Execution returns one execution with its input.
func (c *Client) Execution(ctx context.Context, id string) (api.ExecutionDetail, error) {
	return get[api.ExecutionDetail](ctx, c, "/executions/"+url.PathEscape(id))
}

func workflow(id string) string { return "/workflows/" + url.PathEscape(id) }

func trigger(workflowID, nodeID string) string {
	return workflow(workflowID) + "/triggers/" + url.PathEscape(nodeID)
}

// asIs is a body that is JSON already. encoding/json would rewrite it, and refuse deep nesting.
type asIs []byte

func encode(body any) (io.Reader, error) {
	switch body := body.(type) {
	case nil:
		return nil, nil
	case asIs:
		return bytes.NewReader(body), nil
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encode the request: %w", err)
	}
	return bytes.NewReader(text), nil
}

// parameters are the parameters of a query; empty parameters are left out.
type parameters map[string]string

func (p parameters) query() url.Values {
	q := url.Values{}
	for name, value := range p {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q
}

// at returns a time as a parameter, or "" for the zero time.
func at(t time.Time) string {
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
	ctx context.Context, c *Client, path string, page Page, filter parameters,
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

// send makes a call with a body. nil means that the call has no body.
func send[T any](
	ctx context.Context, c *Client, method, path string, body any,
) (result T, err error) {
	err = c.call(ctx, method, path, nil, body, &result)
	return result, err
}

func (c *Client) delete(ctx context.Context, path string) error {
	return c.call(ctx, http.MethodDelete, path, nil, nil, nil)
}

// call sends body as JSON, unless it is nil, and reads the answer into result, unless that is nil.
func (c *Client) call(
	ctx context.Context, method, path string, query url.Values, body, result any,
) error {
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout,
		fmt.Errorf("no answer within %s", callTimeout))
	defer cancel()
	sent, err := encode(body)
	if err != nil {
		return err
	}
	response, err := c.send(ctx, method, path, query, sent)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return noConnection("the answer of %s to %s %s broke off: %w", c.base, method, path, err)
	}
	if result != nil {
		if err := Decode(text, result); err != nil {
			return noConnection("the answer of %s to %s %s is not what the operators' API "+
				"answers (%w); is it the executor's address?", c.base, method, path, err)
		}
	}
	if c.tap != nil {
		c.tap(text)
	}
	return nil
}

// send returns the answer if it is a success, or the problem as an error.
func (c *Client) send(
	ctx context.Context, method, path string, query url.Values, body io.Reader,
) (*http.Response, error) {
	target := c.base + "/api/v1" + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return nil, noConnection("the API's address %q: %w", c.base, withoutURL(ctx, err))
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		request.Header.Set("Idempotency-Key", c.key)
	}
	if c.ifMatch != "" {
		request.Header.Set("If-Match", c.ifMatch)
	}
	if c.ifNoneMatch != "" && method == http.MethodPut {
		request.Header.Set("If-None-Match", c.ifNoneMatch)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil,
			noConnection("cannot reach the operators' API at %s: %w", c.base, withoutURL(ctx, err))
	}
	if response.StatusCode/100 == 2 {
		if c.etag != nil {
			*c.etag = response.Header.Get("ETag")
		}
		return response, nil
	}
	defer func() { _ = response.Body.Close() }()
	return nil, problem(c.base, response)
}

// withoutURL returns the cause of an error without the URL, which the message contains already.
func withoutURL(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if urlErr, ok := errors.AsType[*url.Error](err); ok {
		return urlErr.Err
	}
	return err
}

func problem(base string, response *http.Response) error {
	var p api.Problem
	mediaType, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if mediaType != "application/problem+json" ||
		json.NewDecoder(io.LimitReader(response.Body, 1<<20)).Decode(&p) != nil {
		return noConnection("%s answered %s, not as the operators' API does; is it the "+
			"executor's address?", base, response.Status)
	}
	return &p
}
