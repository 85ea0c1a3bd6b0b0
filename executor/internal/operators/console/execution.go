package console

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/operators/signin"
	"github.com/hookstart/hookstart/shared/execution"
)

// executionPage is the template data of an execution's page.
type executionPage struct {
	operate.Execution
	operate.ExecutionOrigin
	Steps      []timelineStep
	Waiting    string // what the execution is waiting for; "" means that it has ended
	Request    executionInput
	Reruns     []operate.Execution // executions that reran or replayed this one, newest first
	MoreReruns bool                // there may be more reruns than Reruns holds
	HasSample  bool                // the node has a sample payload
	Recognized operate.RecognizedProvider
	OrderKey   string        // "" means that the execution is not ordered
	Output     *jsonDocument // nil means no output
	Form       formView      // the form that cancels the execution or runs it again
}

// timelineStep is an entry of the timeline on an execution's page, such as "Stored" or "Started".
type timelineStep struct {
	Name, Note string
	At         time.Time
	After      time.Duration // time since the previous step
	First      bool          // whether this is the first step; After is then zero
	CSSClass   string        // CSS class of the step's marker
}

// executionInput is the input of an execution, with the headers and the query of its HTTP request.
// StillStored is false if the stream has deleted the start message, which contains them.
type executionInput struct {
	StillStored    bool
	Input          *jsonDocument // nil means that the body was not read
	Headers, Query []nameValuePair
}

type nameValuePair struct{ Name, Value string }

// maxSearchedReruns is the maximum number of a workflow's reruns that a page searches to find the
// reruns of one execution.
const maxSearchedReruns = 500

// recordWaitTimeout is how long the page of an execution waits for the execution's record, which
// may not exist yet if the execution was just started.
const recordWaitTimeout = time.Second

func (c *Console) awaitRecord(ctx context.Context, id string) error {
	tick := time.NewTicker(recordWaitTimeout / 20)
	defer tick.Stop()
	for until := time.Now().Add(recordWaitTimeout); ; {
		_, err := c.Operate.Execution(ctx, signin.Caller(ctx), id)
		if !isNotFound(err) || time.Now().After(until) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

func (c *Console) showExecution(w http.ResponseWriter, r *http.Request) {
	if p, ok := c.loadExecutionPage(w, r, r.PathValue("id")); ok {
		c.render(w, r, http.StatusOK, "execution",
			page{Title: "Execution " + p.ExecutionID, Section: "executions", Body: p})
	}
}

// executionFragment renders those parts of an execution's page that may change until the execution
// has ended.
func (c *Console) executionFragment(w http.ResponseWriter, r *http.Request) {
	if p, ok := c.loadExecutionPage(w, r, r.URL.Query().Get("id")); ok {
		c.writeTemplate(w, r, http.StatusOK, "execution", "execution-parts", p)
	}
}

// loadExecutionPage returns the data of an execution's page. If the data cannot be loaded, it
// responds with an error page and returns false.
func (c *Console) loadExecutionPage(
	w http.ResponseWriter, r *http.Request, id string,
) (p executionPage, found bool) {
	p, err := c.executionPage(r.Context(), id)
	switch {
	case isNotFound(err):
		c.renderError(w, r, http.StatusNotFound, "There is no such execution",
			"A new execution is recorded within a moment: reload this page. "+
				"Old records are deleted.")
	case err != nil:
		c.renderCallError(w, r, err)
	}
	return p, err == nil
}

func (c *Console) executionPage(ctx context.Context, id string) (p executionPage, err error) {
	if err := c.awaitRecord(ctx, id); err != nil {
		return p, err
	}
	detail, err := c.Operate.ExecutionDetail(ctx, signin.Caller(ctx), id)
	if err != nil {
		return p, err
	}
	p = executionPage{
		Execution: detail.Execution, Request: executionInputOf(detail),
		Recognized: detail.Recognized, OrderKey: detail.OrderKey,
		Form: newFormView(ctx, formName("again", id),
			map[string]string{idempotencyKeyField: newIdempotencyKey()}),
	}
	if p.ExecutionOrigin, err = c.lookUpOrigin(ctx, detail.WorkflowID, detail.NodeID); err != nil {
		return p, err
	}
	if p.Reruns, p.MoreReruns, err = c.reruns(ctx, p.Execution); err != nil {
		return p, err
	}
	if p.HasNode {
		node, err := c.Operate.TriggerNode(ctx, signin.Caller(ctx), detail.WorkflowID,
			detail.NodeID)
		if err != nil && !isNotFound(err) { // the node may have been deleted a moment ago
			return p, err
		}
		p.HasSample = hasSample(node)
	}
	if detail.Output != nil {
		p.Output = newJSONDocument("output", detail.Output, executionAPIPath(id))
	}
	p.Steps, p.Waiting = timelineSteps(p.Execution, detail.StoredAt)
	return p, nil
}

// FragmentURL returns the URL from which fragments.js loads the parts that change until the
// execution has ended. It returns "" if the execution has ended.
func (p executionPage) FragmentURL() string {
	if p.Waiting == "" {
		return ""
	}
	return "/fragments/execution?" + url.Values{"id": {p.ExecutionID}}.Encode()
}

// Took returns the time from acceptance until the execution ended, or zero if it has not ended.
func (p executionPage) Took() time.Duration { return executionDuration(p.Execution) }

// Ended reports whether the execution has ended, including by rejection.
func (p executionPage) Ended() bool { return execution.Status(p.Status).Final() }

// CanReplay reports whether the execution has ended and its request is still available.
func (p executionPage) CanReplay() bool {
	return p.Ended() && p.Request.StillStored && p.Request.Input != nil
}

// CanCancel reports whether the execution has not ended and nobody has requested its cancellation.
func (p executionPage) CanCancel() bool {
	return !execution.Status(p.Status).Final() && p.CancelRequestedAt.IsZero()
}

// CanRequeue reports whether the execution is a dead letter whose request is still available.
func (p executionPage) CanRequeue() bool {
	return isDeadLetter(p.Execution) && p.Request.StillStored
}

// timelineSteps returns the steps of an execution whose time is known, oldest first. waiting says
// what the execution is waiting for; it is "" if the execution has ended. storedAt is when the
// stream stored the start message; the zero time means that this is unknown.
func timelineSteps(r operate.Execution, storedAt time.Time) (known []timelineStep, waiting string) {
	status := execution.Status(r.Status)
	add := func(name, text, kind string, at time.Time) {
		if !at.IsZero() {
			known = append(known, timelineStep{Name: name, Note: text, CSSClass: kind, At: at})
		}
	}
	// Sort the steps by time: a fast runner may start before the executor writes the record.
	defer func() {
		slices.SortStableFunc(known, func(a, b timelineStep) int { return a.At.Compare(b.At) })
		for i := range known {
			if known[i].First = i == 0; !known[i].First {
				known[i].After = known[i].At.Sub(known[i-1].At)
			}
		}
	}()
	if r.ReplayOf != "" {
		add("Run again", "an operator started the request of another execution once more", "done",
			r.AcceptedAt)
	} else if r.IsRequeue {
		add("Retried", "an operator started the request of one that had failed", "done",
			r.AcceptedAt)
	} else if r.Source == string(execution.SourceEvent) {
		add("Event", "an operator event of the account started it", "done", r.AcceptedAt)
	} else if isRerun := r.Source == string(execution.SourceRerun); isRerun && r.RerunOf == "" {
		add("Test", "an operator started it on the sample payload", "done", r.AcceptedAt)
	} else if isRerun {
		add("Run again", "an operator started it on the sample payload", "done", r.AcceptedAt)
	} else {
		add("Received", "the request arrived", "done", r.AcceptedAt)
	}
	add("Stored", "in the stream; from here on nothing is lost", "done", storedAt)
	if status == execution.Rejected {
		add("Rejected", "recorded, but no run starts", "rejected", r.RecordedAt)
		return known, ""
	}
	add("Recorded", "in the database", "done", r.RecordedAt)
	add("Started", "a runner took it", "running", r.StartedAt)
	switch status {
	case execution.Succeeded:
		add("Succeeded", "", "succeeded", r.FinishedAt)
	case execution.Failed:
		add("Failed", "", "failed", r.FinishedAt)
	case execution.Queued:
		waiting = "a runner of the queue " + r.Queue
	case execution.Running:
		waiting = "the runner's result"
	case execution.Canceled:
		add("Canceled", "by an operator", "canceled", r.FinishedAt)
	case execution.Rejected: // added above
	}
	if !status.Final() && !r.CancelRequestedAt.IsZero() {
		add("Cancel asked", "its runner ends it", "running", r.CancelRequestedAt)
	}
	return known, waiting
}

func executionInputOf(e operate.ExecutionDetail) executionInput {
	input := executionInput{
		StillStored: !e.InputExpired, Headers: nameValuePairs(e.Headers),
		Query: nameValuePairs(e.Query),
	}
	if e.Input != nil {
		input.Input = newJSONDocument("input", e.Input, executionAPIPath(e.ExecutionID))
	}
	return input
}

// executionAPIPath returns the API path of an execution.
func executionAPIPath(id string) string {
	return api.PathPrefix + "/executions/" + url.PathEscape(id)
}

func nameValuePairs(values execution.Values) []nameValuePair {
	var list []nameValuePair
	for name, all := range values {
		for _, value := range all {
			list = append(list, nameValuePair{name, value})
		}
	}
	slices.SortFunc(list, func(a, b nameValuePair) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Value, b.Value))
	})
	return list
}

// reruns returns the executions that operators started by running the original again. The database
// has no index for such executions, so reruns searches at most maxSearchedReruns of the workflow's
// reruns. more reports whether there may be others, because the workflow has more reruns or the
// database is too slow.
func (c *Console) reruns(
	ctx context.Context, original operate.Execution,
) (made []operate.Execution, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, countQueryTimeout)
	defer cancel()
	all, err := c.Operate.Executions(ctx, signin.Caller(ctx), operate.ExecutionFilter{
		WorkflowID: original.WorkflowID, Source: execution.SourceRerun, Since: original.AcceptedAt,
	}, operate.PageOptions{Limit: maxSearchedReruns})
	if err != nil && ctx.Err() != nil {
		return nil, true, nil
	}
	for _, rerun := range all.Items {
		if rerun.RerunOf == original.ExecutionID && !rerun.IsRequeue ||
			rerun.ReplayOf == original.ExecutionID {
			made = append(made, rerun)
		}
	}
	return made, all.NextCursor != "", err
}
