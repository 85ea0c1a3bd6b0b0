package console

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/operators/signin"
	"github.com/hookstart/hookstart/shared/execution"
)

// workflowPage is the template data of a workflow's page: the toolbar, the settings of one trigger
// node, and the executions.
type workflowPage struct {
	ID, Name, Queue string
	Account         accountView
	State           workflowState
	UnattendedQueue *api.Queue // the workflow's queue if no runner consumes it; nil otherwise
	UsesDemoQueue   bool       // this process's demo runner consumes the queue
	// HasQueuedExecutions means that the workflow is inactive, but that some of its executions are
	// still queued.
	HasQueuedExecutions  bool
	OtherActiveWorkflows []linkChoice // other active workflows of the account, if its plan is full
	Settings             formView
	Switch, Delete       formView
	ToDelete             *api.Workflow // set if the page asks the operator to confirm the deletion
	Nodes                []linkChoice
	Trigger              triggerPane
	Refusals             workflowRefusals
	Executions           executionList
}

// FragmentURL returns the URL from which fragments.js loads the parts that change while the page is
// open.
func (p workflowPage) FragmentURL() string {
	return "/fragments/workflow?" +
		url.Values{"workflow": {p.ID}, "node": {p.Trigger.NodeID}}.Encode()
}

// StartedByEvents reports whether the operator events of the workflow's account start this
// workflow.
func (p workflowPage) StartedByEvents() bool {
	return p.Account.Events != nil && p.Account.Events.WorkflowID == p.ID
}

// linkChoice is a workflow, trigger node or account that a page offers as a link or suggests for a
// filter.
type linkChoice struct {
	ID, Name string
	Current  bool // whether the page is showing this one
}

func workflowLinkChoice(w api.Workflow) linkChoice {
	return linkChoice{ID: w.ID, Name: nameOrID(w.Name, w.ID)}
}

// triggerPane is the template data of the Parameters pane. It does not contain the token, which the
// browser fetches when an operator wants to see or copy it.
type triggerPane struct {
	WorkflowID, NodeID, Name string
	URL                      string // the URL up to and including "token="
	LoopbackURL              string // origin of the public URL if it is a loopback URL, or ""
	Tokens                   []api.Token
	// DeliveryIDs lists the sources of the delivery ID. A source consists of several request fields
	// if the ID is combined from them.
	DeliveryIDs  [][]requestField
	MaxBodyBytes int64
	RateLimit    string
	Sample       string
	Snippets     []snippet

	Conditions []filterCondition // empty means that every request starts an execution
	OrderKey   string
	Answer     *api.Answer   // nil means that responses do not wait for the execution
	Filtered   *api.Filtered // nil means that there is no filter, and nothing was filtered

	Inactive bool        // the workflow is inactive
	Sender   *api.Sender // nil means that the node has no sender
	// Recognized describes the provider that the last request appears to come from.
	Recognized operate.RecognizedProvider
	Preset     api.SenderPreset
	Presets    []api.SenderPreset // all presets

	FilterForm, OrderForm, AnswerForm, RotateForm formView

	SampleForm formView

	// SenderForm sets the sender, NewSecretForm adds a secret, and EndForm ends a secret or removes
	// the sender.
	SenderForm, NewSecretForm, EndForm formView
	PresetFields                       presetFields
	// SecretToEnd and SenderToRemove are the template data of the confirmation dialogs. nil means
	// that the page does not show the dialog.
	SecretToEnd    *secretToEnd
	SenderToRemove *api.Sender
}

// maxOtherWorkflows is the maximum number of other active workflows that the page of a workflow
// lists.
const maxOtherWorkflows = 5

func (c *Console) showWorkflow(w http.ResponseWriter, r *http.Request) {
	p, ok := c.loadWorkflowPage(w, r, r.PathValue("id"))
	if !ok {
		return
	}
	var err error
	ctx := r.Context()
	p.Trigger.Recognized, err = c.Operate.ProviderOfLastRequest(ctx, signin.Caller(ctx), p.ID,
		p.Trigger.NodeID)
	if err != nil {
		c.renderCallError(w, r, err)
		return
	}
	if p.Executions, err = c.executionList(r, "/workflows/"+p.ID, p.ID); err == nil {
		p.Refusals, err = c.workflowRefusals(r.Context(), p.ID)
	}
	if err != nil {
		c.renderCallError(w, r, err)
		return
	}
	c.render(w, r, http.StatusOK, "workflow", page{Title: p.Name, Section: "workflows", Body: p})
}

// workflowFragment renders the parts that may change while the page is open, such as when the
// tokens were last used.
func (c *Console) workflowFragment(w http.ResponseWriter, r *http.Request) {
	if p, ok := c.loadWorkflowPage(w, r, r.URL.Query().Get("workflow")); ok {
		c.writeTemplate(w, r, http.StatusOK, "workflow", "workflow-parts", p)
	}
}

// loadWorkflowPage returns the data of a workflow's page without the lists of executions and
// refusals. If it returns false, it has already responded: with an error page, or with a redirect
// to the execution whose ID the request searches for.
func (c *Console) loadWorkflowPage(
	w http.ResponseWriter, r *http.Request, id string,
) (p workflowPage, found bool) {
	workflow, err := c.Operate.Workflow(r.Context(), signin.Caller(r.Context()), id)
	if err != nil {
		if isNotFound(err) {
			c.renderError(w, r, http.StatusNotFound, "There is no such workflow",
				"It may have been deleted. The records of its executions are kept for a while.")
		} else {
			c.renderCallError(w, r, err)
		}
		return p, false
	}
	if c.redirectIfExecutionID(w, r) {
		return p, false
	}
	if p, err = c.workflowPage(r.Context(), workflow, r.URL.Query().Get("node")); err != nil {
		c.renderCallError(w, r, err)
		return p, false
	}
	return p, true
}

func (c *Console) workflowPage(
	ctx context.Context, w api.Workflow, node string,
) (p workflowPage, err error) {
	p = workflowPage{
		ID: w.ID, Name: nameOrID(w.Name, w.ID), Queue: w.Queue, State: workflowStateOf(w),
		Settings: newFormView(ctx, "settings",
			workflowSettingsFields(w.ID, w.Name, w.Queue, w.RateLimit)),
		Switch:        newFormView(ctx, "switch", nil),
		Delete:        newFormView(ctx, "delete", nil),
		ToDelete:      confirmDialogData[api.Workflow](ctx),
		UsesDemoQueue: c.DemoQueue != "" && w.Queue == c.DemoQueue,
	}
	idle, err := c.Operate.UnattendedQueues(ctx, signin.Caller(ctx))
	if err != nil {
		return p, err
	}
	if q, ok := idle[w.Queue]; ok {
		p.UnattendedQueue = &q
	}
	if p.Account, err = c.accountView(ctx, w.AccountID); err != nil {
		return p, err
	}
	if !slices.ContainsFunc(w.Triggers,
		func(t api.WorkflowTrigger) bool { return t.NodeID == node }) {
		node = w.Triggers[0].NodeID // a workflow has at least one node
	}
	for _, t := range w.Triggers {
		p.Nodes = append(p.Nodes, linkChoice{
			t.NodeID, nameOrID(t.Name, t.NodeID),
			t.NodeID == node,
		})
	}
	if p.Account.Webhooks() && p.Account.Full() {
		if p.OtherActiveWorkflows, err = c.otherActiveWorkflows(ctx, w); err != nil {
			return p, err
		}
	}
	if !w.Active {
		if p.HasQueuedExecutions, err = c.hasQueuedExecutions(ctx, w.ID); err != nil {
			return p, err
		}
	}
	p.Trigger, err = c.triggerPane(ctx, w.ID, node)
	p.Trigger.Inactive = !w.Active
	return p, err
}

// hasQueuedExecutions reports whether executions of a workflow are queued. It returns false if the
// database is too slow.
func (c *Console) hasQueuedExecutions(ctx context.Context, workflowID string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, countQueryTimeout)
	defer cancel()
	queued, err := c.Operate.Executions(ctx, signin.Caller(ctx), operate.ExecutionFilter{
		WorkflowID: workflowID, Status: execution.Queued,
	}, operate.PageOptions{Limit: 1})
	if err != nil && ctx.Err() != nil {
		return false, nil
	}
	return len(queued.Items) > 0, err
}

func (c *Console) triggerPane(ctx context.Context, workflowID, nodeID string) (triggerPane, error) {
	got, err := c.Operate.TriggerNode(ctx, signin.Caller(ctx), workflowID, nodeID)
	if err != nil {
		return triggerPane{}, err
	}
	t := triggerPane{
		WorkflowID: workflowID, NodeID: nodeID, Name: nameOrID(got.Name, nodeID),
		URL:         strings.TrimSuffix(got.URL, got.Token),
		LoopbackURL: operate.LoopbackOrigin(got.URL), Tokens: got.Tokens,
		DeliveryIDs: deliveryIDFields(got.DeliveryIDSources), MaxBodyBytes: got.MaxBodyBytes,
		RateLimit: rateLimitText(got.RateLimit),
	}
	t.setFilterOrderAndAnswer(got)
	t.FilterForm, t.OrderForm, t.AnswerForm = filterOrderAndAnswerForms(ctx, &api.TriggerSettings{
		Filter: got.Filter, OrderKey: got.OrderKey, Answer: got.Answer,
	})
	t.RotateForm = newFormView(ctx, "rotate", map[string]string{"grace": "3600"})
	t.Sample = sampleText(got.SamplePayload)
	t.SampleForm = newFormView(ctx, "sample", sampleFields(got.SamplePayload, t.Sample))
	t.Snippets = snippets(t.URL,
		slices.Concat(got.DeliveryIDHeaders, []string{"X-Webhook-Delivery-Id"})[0])
	presets, err := c.senderPresets(ctx)
	if err != nil {
		return t, err
	}
	t.Sender, t.Presets = got.Sender, presets
	for _, p := range presets {
		if got.Sender != nil && p.ID == got.Sender.Preset {
			t.Preset = p
		}
	}
	t.setSenderForms(ctx)
	for i := range t.Tokens {
		t.Tokens[i].Token = "" // ensures that no template can show it
	}
	return t, nil
}

// NeverCalled reports whether none of the tokens has ever been used.
func (t triggerPane) NeverCalled() bool {
	return !slices.ContainsFunc(t.Tokens,
		func(token api.Token) bool { return token.LastUsedAt != nil })
}

// NotCalledYet reports whether the sender has neither sent a verified request nor completed its
// handshake, which means that it may not be connected yet.
func (t triggerPane) NotCalledYet() bool {
	return t.Sender != nil && t.Preset.Verifies && t.Sender.LastVerifiedAt.IsZero() &&
		t.Sender.LastHandshakeAt.IsZero()
}

// WaitsForSecret reports whether the node still has no secret because the provider has not sent it
// yet. Some providers choose the secret themselves, and send it to the webhook.
func (t triggerPane) WaitsForSecret() bool {
	return t.Preset.Secret != nil && t.Preset.Secret.Captured && t.Sender != nil &&
		len(t.Sender.Secrets) == 0
}

// OfferGitHub reports whether to show the steps for connecting GitHub: the sender is GitHub, or
// none is set.
func (t triggerPane) OfferGitHub() bool { return t.Sender == nil || t.Preset.ID == "github" }

// CannotSignTests reports whether test requests cannot be signed, because hookstart only has the
// sender's public key.
func (t triggerPane) CannotSignTests() bool {
	return t.Preset.Secret != nil && t.Preset.Secret.Public
}

// requestField is a field of a request, as shown on the page.
type requestField struct {
	Name     string // name of a header or a form field, or a JSON pointer
	Location string // where the field is, for display; "" means that it is a header
}

// deliveryIDFields parses sources of delivery IDs for display. For each source, it returns the
// fields that the source combines.
func deliveryIDFields(sources []string) [][]requestField {
	all := make([][]requestField, len(sources))
	for i, source := range sources {
		for part := range strings.SplitSeq(source, " + ") {
			part, absent := strings.CutPrefix(part, "!")
			kind, name, _ := strings.Cut(part, ":")
			where := map[string]string{"ptr": "in the JSON", "form": "in the form"}[kind]
			if absent {
				where = "must not be there"
			}
			all[i] = append(all[i], requestField{Name: name, Location: where})
		}
	}
	return all
}

// maxIndentedBrackets is the maximum number of brackets in a text that indentJSON formats. It is
// limited because nested brackets make the size of the formatted text quadratic.
const maxIndentedBrackets = 2000

// indentJSON formats a JSON text on several lines. A text that already has several lines, or too
// many brackets, is returned unchanged.
func indentJSON(text []byte) string {
	var indented bytes.Buffer
	if bytes.Count(text, []byte("["))+bytes.Count(text, []byte("{")) > maxIndentedBrackets {
		return string(text)
	}
	if bytes.ContainsRune(text, '\n') || json.Indent(&indented, text, "", "  ") != nil {
		return string(text)
	}
	return indented.String()
}

// otherActiveWorkflows returns the first few active workflows of the account other than w.
func (c *Console) otherActiveWorkflows(
	ctx context.Context, w api.Workflow,
) (others []linkChoice, err error) {
	filter := operate.WorkflowFilter{AccountID: w.AccountID, Active: true}
	active, err := c.Operate.Workflows(ctx, signin.Caller(ctx), filter,
		operate.PageOptions{Limit: maxOtherWorkflows + 1})
	for _, other := range active.Items {
		if other.ID != w.ID && len(others) < maxOtherWorkflows {
			others = append(others, workflowLinkChoice(other))
		}
	}
	return others, err
}
