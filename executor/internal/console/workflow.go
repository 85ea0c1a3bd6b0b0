package console

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/hookstart/hookstart/executor/api"
	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
)

// workflowPage is the data of a workflow's page: the toolbar, the settings of one
// trigger node, and the executions.
type workflowPage struct {
	ID, Name, Queue string
	Account         quota
	State           state
	Demo            bool     // the demo runner of this process takes its queue
	Others          []choice // active workflows of a full account: those that could be switched off
	OwnRate         *hookstartv1.RateLimit
	Nodes           []choice
	Trigger         trigger
	Refusals        refusals
	Executions      panel
}

// Fragment is where the parts are that change while the page is open, for fragments.js.
func (p workflowPage) Fragment() string {
	return "/fragments/workflow?" + url.Values{"workflow": {p.ID}, "node": {p.Trigger.NodeID}}.Encode()
}

// choice is something to go to.
type choice struct {
	ID, Name string
	Current  bool
}

// trigger is the Parameters pane. The token is not in it: the browser asks for it when
// somebody wants to see or to copy it.
type trigger struct {
	WorkflowID, NodeID, Name string
	URL                      string // up to and with "token="
	Loopback                 string // the public URL, if only this machine can reach it
	Tokens                   []api.Token
	DeliveryIDHeaders        []string
	MaxBodyBytes             int64
	Rate                     string
	Sample                   string
	Snippets                 []snippet
}

// maxOthers is how many workflows are named that could be switched off.
const maxOthers = 5

func (c *Console) showWorkflow(w http.ResponseWriter, r *http.Request) {
	p, found := c.workflow(w, r, r.PathValue("id"))
	if !found {
		return
	}
	var err error
	if p.Executions, err = c.panel(r, "/workflows/"+p.ID, p.ID); err == nil {
		p.Refusals, err = c.refusals(r.Context(), p.ID)
	}
	if err != nil {
		c.failed(w, r, err)
		return
	}
	c.render(w, r, http.StatusOK, "workflow", page{Title: p.Name, Section: "workflows", Body: p})
}

// workflowFragment is what others may change about a workflow, and when its tokens were used.
func (c *Console) workflowFragment(w http.ResponseWriter, r *http.Request) {
	if p, found := c.workflow(w, r, r.URL.Query().Get("workflow")); found {
		c.write(w, r, http.StatusOK, "workflow", "workflow-parts", p)
		note(w, "fragment", nil)
	}
}

// workflow is a workflow's page without its lists, or it has answered why there is none.
func (c *Console) workflow(w http.ResponseWriter, r *http.Request, id string) (p workflowPage, found bool) {
	have, exists := c.Directory.Workflow(id)
	if !exists {
		c.fail(w, r, http.StatusNotFound, "There is no such workflow", "It may have been deleted. The records of its executions are kept for a while.")
		return p, false
	}
	if c.goToExecution(w, r) {
		return
	}
	record := have.Record
	p = workflowPage{
		ID: id, Name: nameOr(record.GetName(), id), Queue: record.GetQueue(),
		Account: c.quota(record.GetAccountId()), State: c.state(record), OwnRate: record.GetRateLimit(),
		Demo: c.DemoQueue != "" && record.GetQueue() == c.DemoQueue,
	}
	node := r.URL.Query().Get("node")
	if !hasNode(record, node) {
		node = record.GetTriggers()[0].GetNodeId() // a workflow has one at least
	}
	for _, t := range record.GetTriggers() {
		p.Nodes = append(p.Nodes, choice{t.GetNodeId(), nameOr(t.GetName(), t.GetNodeId()), t.GetNodeId() == node})
	}
	if p.Account.Webhooks && p.Account.Full() {
		p.Others = c.activeBesides(record)
	}
	var err error
	if p.Trigger, err = c.trigger(r, id, node); err != nil {
		c.failed(w, r, err)
		return p, false
	}
	return p, true
}

func hasNode(w *hookstartv1.Workflow, nodeID string) bool {
	return slices.ContainsFunc(w.GetTriggers(), func(t *hookstartv1.TriggerNode) bool { return t.GetNodeId() == nodeID })
}

func (c *Console) trigger(r *http.Request, workflowID, nodeID string) (trigger, error) {
	var got api.Trigger
	err := c.ask(r, "/workflows/"+url.PathEscape(workflowID)+"/triggers/"+url.PathEscape(nodeID), &got)
	if err != nil {
		return trigger{}, err
	}
	t := trigger{
		WorkflowID: workflowID, NodeID: nodeID, Name: nameOr(got.Name, nodeID), URL: strings.TrimSuffix(got.URL, got.Token),
		Loopback: loopback(got.URL), Tokens: got.Tokens, DeliveryIDHeaders: got.DeliveryIDHeaders, MaxBodyBytes: got.MaxBodyBytes,
		Rate: rateText(got.RateLimit.Requests, got.RateLimit.WindowSeconds),
	}
	if sample := got.SamplePayload; string(sample) != "null" {
		t.Sample = readable(sample)
	}
	t.Snippets = snippets(t.URL, slices.Concat(got.DeliveryIDHeaders, []string{"X-Webhook-Delivery-Id"})[0])
	for i := range t.Tokens {
		t.Tokens[i].Token = "" // a template must not be able to show it
	}
	return t, nil
}

// maxLaidOut is how many brackets a text may open to be laid out: nested in each other,
// they make its size quadratic.
const maxLaidOut = 2000

// readable is a JSON text over several lines; one that somebody has laid out already stays
// as it is.
func readable(text []byte) string {
	var indented bytes.Buffer
	if bytes.Count(text, []byte("["))+bytes.Count(text, []byte("{")) > maxLaidOut {
		return string(text)
	}
	if bytes.ContainsRune(text, '\n') || json.Indent(&indented, text, "", "  ") != nil {
		return string(text)
	}
	return indented.String()
}

// activeBesides are the first other active workflows of an account.
func (c *Console) activeBesides(w *hookstartv1.Workflow) []choice {
	var others []choice
	after := ""
	for {
		some := c.Directory.Workflows(w.GetAccountId(), after, searchPage)
		for _, other := range some {
			if other.GetActive() && other.GetId() != w.GetId() {
				others = append(others, choice{ID: other.GetId(), Name: nameOr(other.GetName(), other.GetId())})
			}
			if len(others) == maxOthers {
				return others
			}
		}
		if len(some) < searchPage {
			return others
		}
		after = some[len(some)-1].GetId()
	}
}
