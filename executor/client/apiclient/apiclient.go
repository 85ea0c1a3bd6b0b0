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

// Client calls the API. It is safe for concurrent use. Its errors are an *api.Problem, the API's, or a *ConnectionError.
type Client struct {
	base  string
	token string
	http  *http.Client
	tap   func(body []byte)
	key   string // of a call that must not start anything twice
	// The conditions of a call. Empty: none.
	ifMatch, ifNoneMatch string
	etag                 *string // takes the ETag of each answer; nil: nothing does
}

// callTimeout is longer than the API takes for any call, to say so itself.
const callTimeout = time.Minute

// New calls the API at base, for example http://127.0.0.1:8081, with the admin token or a key.
func New(base, token string) *Client {
	return &Client{base: strings.TrimRight(base, "/"), token: token, http: &http.Client{
		// The API never redirects: somebody else would get the token.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Tap is a client that also passes to tap the body of each successful answer, or the data of each event, with unknown members.
func (c *Client) Tap(tap func(body []byte)) *Client {
	tapped := *c
	tapped.tap = tap
	return &tapped
}

// Over is a client that calls by a transport of its own: one that knows a private certificate authority.
func (c *Client) Over(transport http.RoundTripper) *Client {
	over, own := *c, *c.http
	own.Transport = transport
	over.http = &own
	return &over
}

// IfMatch returns a client whose calls change only the version that a tag names, as WithETag has got it. Another
// version is a problem with the code changed_since. "": any version.
func (c *Client) IfMatch(tag string) *Client {
	conditional := *c
	conditional.ifMatch = tag
	return &conditional
}

// IfNew returns a client whose PutAccount and PutWorkflow create, and replace nothing: what exists already is a
// problem with the code changed_since.
func (c *Client) IfNew() *Client {
	conditional := *c
	conditional.ifNoneMatch = "*"
	return &conditional
}

// WithETag returns a client that stores the ETag of each answer in tag; "" if it has none. The calls of such a
// client must not be concurrent.
func (c *Client) WithETag(tag *string) *Client {
	noting := *c
	noting.etag = tag
	return &noting
}

// Patch is a JSON merge patch: members that are not named stay, and nil takes a member away.
type Patch map[string]any

// ConnectionError means that the API did not answer, or that something else did.
type ConnectionError struct{ err error }

func (e *ConnectionError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *ConnectionError) Unwrap() error { return e.err }

func noConnection(format string, args ...any) error {
	return &ConnectionError{fmt.Errorf(format, args...)}
}

// Page says which part of a list is wanted. Its zero value is the beginning.
type Page struct {
	Limit  int // 0: the API's default
	Cursor string
}

// Items iterates over a list that fetch returns page by page. An error is the last thing that it yields.
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

// ExecutionFilter says which executions are wanted. Zero fields do not filter.
type ExecutionFilter struct {
	AccountID, WorkflowID, Status, Source, DeliveryID string
	Since, Until                                      time.Time
}

// Plans lists the plan catalog.
func (c *Client) Plans(ctx context.Context) (api.List[api.Plan], error) {
	return get[api.List[api.Plan]](ctx, c, "/plans")
}

// PutAccount creates an account or replaces it.
func (c *Client) PutAccount(ctx context.Context, id string, put api.PutAccount) (api.Account, error) {
	return send[api.Account](ctx, c, http.MethodPut, "/accounts/"+url.PathEscape(id), put)
}

// PatchAccount changes what patch names: members of an api.PutAccount.
func (c *Client) PatchAccount(ctx context.Context, id string, patch Patch) (api.Account, error) {
	return send[api.Account](ctx, c, http.MethodPatch, "/accounts/"+url.PathEscape(id), patch)
}

// DeleteAccount deletes an account without workflows and keys.
func (c *Client) DeleteAccount(ctx context.Context, id string) error {
	return c.delete(ctx, "/accounts/"+url.PathEscape(id))
}

// Account returns one account.
func (c *Client) Account(ctx context.Context, id string) (api.Account, error) {
	return get[api.Account](ctx, c, "/accounts/"+url.PathEscape(id))
}

// Accounts lists accounts.
func (c *Client) Accounts(ctx context.Context, page Page) (api.List[api.Account], error) {
	return list[api.Account](ctx, c, "/accounts", page, nil)
}

// PutWorkflow creates a workflow, inactive, or replaces it.
func (c *Client) PutWorkflow(ctx context.Context, id string, put api.PutWorkflow) (api.Workflow, error) {
	return send[api.Workflow](ctx, c, http.MethodPut, workflow(id), put)
}

// PatchWorkflow changes what patch names: members of an api.PutWorkflow. Its triggers are replaced as a whole.
func (c *Client) PatchWorkflow(ctx context.Context, id string, patch Patch) (api.Workflow, error) {
	return send[api.Workflow](ctx, c, http.MethodPatch, workflow(id), patch)
}

// PutWorkflowJSON does the same with an api.PutWorkflow that is JSON already. Only the API checks it.
func (c *Client) PutWorkflowJSON(ctx context.Context, id string, put []byte) (api.Workflow, error) {
	return send[api.Workflow](ctx, c, http.MethodPut, workflow(id), asIs(put))
}

// Workflow returns one workflow.
func (c *Client) Workflow(ctx context.Context, id string) (api.Workflow, error) {
	return get[api.Workflow](ctx, c, workflow(id))
}

// Workflows lists the workflows of an account, or all when accountID is empty.
func (c *Client) Workflows(ctx context.Context, accountID string, page Page) (api.List[api.Workflow], error) {
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

// Deactivate ends that.
func (c *Client) Deactivate(ctx context.Context, id string) (api.Workflow, error) {
	return send[api.Workflow](ctx, c, http.MethodPost, workflow(id)+"/deactivate", nil)
}

// Refusals counts a workflow's refused requests since a time (zero: in the last 24 hours), by code.
func (c *Client) Refusals(ctx context.Context, workflowID string, since time.Time, page Page) (api.List[api.Refusal], error) {
	return list[api.Refusal](ctx, c, workflow(workflowID)+"/refusals", page, parameters{"since": at(since)})
}

// AllRefusals counts the refused requests of all workflows, by workflow and code, the last refused first.
func (c *Client) AllRefusals(ctx context.Context, since time.Time, page Page) (api.List[api.WorkflowRefusal], error) {
	return list[api.WorkflowRefusal](ctx, c, "/refusals", page, parameters{"since": at(since)})
}

// Queues lists what waits in each queue, and who takes it.
func (c *Client) Queues(ctx context.Context, page Page) (api.List[api.Queue], error) {
	return list[api.Queue](ctx, c, "/queues", page, nil)
}

// Members lists the executors and ingresses that run.
func (c *Client) Members(ctx context.Context) (api.Members, error) {
	return get[api.Members](ctx, c, "/members")
}

// PauseQueue lets no group of a queue be handed anything new, until a time; zero: until ResumeQueue.
func (c *Client) PauseQueue(ctx context.Context, queue string, until time.Time) (api.Queue, error) {
	return send[api.Queue](ctx, c, http.MethodPost, "/queues/"+url.PathEscape(queue)+"/pause", api.PauseQueue{Until: until})
}

// ResumeQueue ends that.
func (c *Client) ResumeQueue(ctx context.Context, queue string) (api.Queue, error) {
	return send[api.Queue](ctx, c, http.MethodPost, "/queues/"+url.PathEscape(queue)+"/resume", nil)
}

// SetQueueGroup sets how many executions a group of runners has in flight; nil: as many as its members ask for.
func (c *Client) SetQueueGroup(ctx context.Context, queue, group string, maxInFlight *int64) (api.QueueGroup, error) {
	return send[api.QueueGroup](ctx, c, http.MethodPut, "/queues/"+url.PathEscape(queue)+"/groups/"+url.PathEscape(group), api.PutQueueGroup{MaxInFlight: maxInFlight})
}

// PublicURL checks where the public URL leads.
func (c *Client) PublicURL(ctx context.Context) (api.PublicURL, error) {
	return get[api.PublicURL](ctx, c, "/public-url")
}

// Trigger returns a trigger node with its URL and tokens.
func (c *Client) Trigger(ctx context.Context, workflowID, nodeID string) (api.Trigger, error) {
	return get[api.Trigger](ctx, c, trigger(workflowID, nodeID))
}

// PatchTrigger changes what patch names: members of an api.TriggerSettings.
func (c *Client) PatchTrigger(ctx context.Context, workflowID, nodeID string, patch Patch) (api.Trigger, error) {
	return send[api.Trigger](ctx, c, http.MethodPatch, trigger(workflowID, nodeID), patch)
}

// SetSamplePayload configures a node's sample payload: one JSON text.
func (c *Client) SetSamplePayload(ctx context.Context, workflowID, nodeID string, sample []byte) (api.Trigger, error) {
	return send[api.Trigger](ctx, c, http.MethodPut, trigger(workflowID, nodeID)+"/sample-payload", asIs(sample))
}

// RotateToken gives a node a new token.
func (c *Client) RotateToken(ctx context.Context, workflowID, nodeID string, keepOld time.Duration) (api.Trigger, error) {
	rotate := api.RotateToken{KeepOldForSeconds: int64(keepOld / time.Second)}
	return send[api.Trigger](ctx, c, http.MethodPost, trigger(workflowID, nodeID)+"/rotate-token", rotate)
}

// RerunTrigger starts an execution on a node's sample payload.
func (c *Client) RerunTrigger(ctx context.Context, workflowID, nodeID string) (api.Started, error) {
	return send[api.Started](ctx, c, http.MethodPost, trigger(workflowID, nodeID)+"/rerun", nil)
}

// SendTest lets the executor post to a node's webhook URL as its sender would. A refusal by the endpoint is no error.
func (c *Client) SendTest(ctx context.Context, workflowID, nodeID string, test api.SendTest) (api.SentTest, error) {
	return send[api.SentTest](ctx, c, http.MethodPost, trigger(workflowID, nodeID)+"/send-test", test)
}

// RerunExecution starts the same trigger again, on its sample payload.
func (c *Client) RerunExecution(ctx context.Context, id string) (api.Started, error) {
	return send[api.Started](ctx, c, http.MethodPost, "/executions/"+url.PathEscape(id)+"/rerun", nil)
}

// RequeueExecution starts a failed execution again, on its original body. It is idempotent.
func (c *Client) RequeueExecution(ctx context.Context, id string) (api.Started, error) {
	return send[api.Started](ctx, c, http.MethodPost, "/executions/"+url.PathEscape(id)+"/requeue", nil)
}

// ReplayExecution starts an execution on the original body, headers and query of another. With a key, it is idempotent.
func (c *Client) ReplayExecution(ctx context.Context, id, key string) (api.Started, error) {
	return send[api.Started](ctx, c.withKey(key), http.MethodPost, "/executions/"+url.PathEscape(id)+"/replay", nil)
}

// ReplayRejected replays rejected executions, each once for a key ("": once for all calls without one).
func (c *Client) ReplayRejected(ctx context.Context, which api.ReplayRejected, key string) (api.Replayed, error) {
	return send[api.Replayed](ctx, c.withKey(key), http.MethodPost, "/executions/replay", which)
}

// withKey is a client whose calls have an idempotency key.
func (c *Client) withKey(key string) *Client {
	with := *c
	with.key = key
	return &with
}

// RequeueDeadLetters requeues many dead letters, each once however often it is called.
func (c *Client) RequeueDeadLetters(ctx context.Context, which api.SelectDeadLetters) (api.Requeued, error) {
	return send[api.Requeued](ctx, c, http.MethodPost, "/dead-letters/requeue", which)
}

// DismissDeadLetters takes many dead letters off the list.
func (c *Client) DismissDeadLetters(ctx context.Context, which api.SelectDeadLetters) (api.Dismissed, error) {
	return send[api.Dismissed](ctx, c, http.MethodPost, "/dead-letters/dismiss", which)
}

// DeadLetterFilter says which dead letters are wanted. Zero fields do not filter.
type DeadLetterFilter struct {
	WorkflowID, Reason string
	Since, Until       time.Time
}

// DeadLetters lists dead letters, the newest first.
func (c *Client) DeadLetters(ctx context.Context, filter DeadLetterFilter, page Page) (api.List[api.DeadLetter], error) {
	return list[api.DeadLetter](ctx, c, "/dead-letters", page, parameters{
		"workflowId": filter.WorkflowID, "reason": filter.Reason, "since": at(filter.Since), "until": at(filter.Until),
	})
}

// Executions lists executions, the newest first.
func (c *Client) Executions(ctx context.Context, filter ExecutionFilter, page Page) (api.List[api.Execution], error) {
	return list[api.Execution](ctx, c, "/executions", page, parameters{
		"accountId": filter.AccountID, "workflowId": filter.WorkflowID, "status": filter.Status, "source": filter.Source,
		"deliveryId": filter.DeliveryID, "since": at(filter.Since), "until": at(filter.Until),
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

// asIs is a body that is JSON already. encoding/json would rewrite it, and refuse a deep nesting.
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

// parameters are those of a query; empty ones are left out.
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

// at is a time as a parameter; "": zero.
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

func list[T any](ctx context.Context, c *Client, path string, page Page, filter parameters) (result api.List[T], err error) {
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

// send makes a call with a body; nil: without one.
func send[T any](ctx context.Context, c *Client, method, path string, body any) (result T, err error) {
	err = c.call(ctx, method, path, nil, body, &result)
	return result, err
}

func (c *Client) delete(ctx context.Context, path string) error {
	return c.call(ctx, http.MethodDelete, path, nil, nil, nil)
}

// call sends body as JSON, unless it is nil, and reads the answer into result, unless that is nil.
func (c *Client) call(ctx context.Context, method, path string, query url.Values, body, result any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, fmt.Errorf("no answer within %s", callTimeout))
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
			return noConnection("the answer of %s to %s %s is not what the operators' API answers (%w); is it the executor's address?", c.base, method, path, err)
		}
	}
	if c.tap != nil {
		c.tap(text)
	}
	return nil
}

// send returns the answer if it is a success, else the problem.
func (c *Client) send(ctx context.Context, method, path string, query url.Values, body io.Reader) (*http.Response, error) {
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
		return nil, noConnection("cannot reach the operators' API at %s: %w", c.base, withoutURL(ctx, err))
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

// withoutURL is the cause alone: the URL was said already.
func withoutURL(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if of, is := errors.AsType[*url.Error](err); is {
		return of.Err
	}
	return err
}

func problem(base string, response *http.Response) error {
	var p api.Problem
	mediaType, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if mediaType != "application/problem+json" || json.NewDecoder(io.LimitReader(response.Body, 1<<20)).Decode(&p) != nil {
		return noConnection("%s answered %s, not as the operators' API does; is it the executor's address?", base, response.Status)
	}
	return &p
}
