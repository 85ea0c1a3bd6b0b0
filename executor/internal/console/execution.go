package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

// executionPage is the data of an execution's page.
type executionPage struct {
	store.Record
	WorkflowName string
	HasWorkflow  bool // it still exists
	Exists       bool // its node does, too: it can run again
	Steps        []step
	Waiting      string // what it waits for; "": it has ended
	Request      request
	Reruns       []store.Record // that were made of it, the newest first
	MoreReruns   bool           // there may be others
	Output       *document      // nil: there is none
}

// step is a moment of an execution's life.
type step struct {
	Name, Note string
	At         time.Time
	After      time.Duration // since the step before
	First      bool
	Kind       string // of its mark
}

// request is what started an execution, as far as the stream still has it.
type request struct {
	Known          bool
	Input          *document // nil: the body was not read
	Headers, Query []field
	storedAt       time.Time
}

type field struct{ Name, Value string }

// maxReruns is how many reruns of a workflow are looked through for those of one execution.
const maxReruns = 500

// newRecordWait is how long an execution is waited for that is not recorded: whoever has just
// started one may be here first.
const newRecordWait = time.Second

func (c *Console) awaitRecord(ctx context.Context, id string) (store.Record, error) {
	tick := time.NewTicker(newRecordWait / 20)
	defer tick.Stop()
	for until := time.Now().Add(newRecordWait); ; {
		record, err := c.Store.Get(ctx, id)
		if !errors.Is(err, store.ErrNotFound) || time.Now().After(until) {
			return record, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return record, err
		}
	}
}

func (c *Console) showExecution(w http.ResponseWriter, r *http.Request) {
	if p, found := c.execution(w, r, r.PathValue("id")); found {
		c.render(w, r, http.StatusOK, "execution", page{Title: "Execution " + p.ID, Section: "executions", Body: p})
	}
}

// executionFragment is what changes of an execution until it has ended.
func (c *Console) executionFragment(w http.ResponseWriter, r *http.Request) {
	if p, found := c.execution(w, r, r.URL.Query().Get("id")); found {
		c.write(w, r, http.StatusOK, "execution", "execution-parts", p)
		note(w, "fragment", nil)
	}
}

// execution is an execution's page, or it has answered why there is none.
func (c *Console) execution(w http.ResponseWriter, r *http.Request, id string) (p executionPage, found bool) {
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	record, err := c.awaitRecord(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		c.fail(w, r, http.StatusNotFound, "There is no such execution",
			"One that was just started is recorded in a moment: load this page again. Old records are deleted.")
		return p, false
	}
	p = executionPage{Record: record, WorkflowName: record.WorkflowID}
	if err == nil {
		p.Request, err = c.request(ctx, record)
	}
	if err == nil {
		p.Reruns, p.MoreReruns, err = c.reruns(ctx, record)
	}
	if err != nil {
		c.failed(w, r, err)
		return p, false
	}
	if workflow, exists := c.Directory.Workflow(record.WorkflowID); exists {
		p.WorkflowName = nameOr(workflow.Record.GetName(), record.WorkflowID)
		p.HasWorkflow, p.Exists = true, hasNode(workflow.Record, record.NodeID)
	}
	if record.Output != nil {
		p.Output = newDocument("output", record.Output, wholeRecord(record.ID))
	}
	p.Steps, p.Waiting = steps(record, p.Request.storedAt)
	return p, true
}

// Fragment is where the parts are that change until it has ended, for fragments.js; "": it has.
func (p executionPage) Fragment() string {
	if p.Waiting == "" {
		return ""
	}
	return "/fragments/execution?" + url.Values{"id": {p.ID}}.Encode()
}

// Took is from the acceptance to the end; zero: it has not ended.
func (p executionPage) Took() time.Duration { return row{Record: p.Record}.Took() }

// CanRequeue says whether it is a dead letter whose input is still there.
func (p executionPage) CanRequeue() bool {
	return p.Status == execution.Failed && p.RequeuedAs == "" && p.Request.Known
}

// steps are the moments that are known, in their order, and what comes next.
func steps(r store.Record, storedAt time.Time) (known []step, waiting string) {
	add := func(name, text, kind string, at time.Time) {
		if !at.IsZero() {
			known = append(known, step{Name: name, Note: text, Kind: kind, At: at})
		}
	}
	// A quick runner starts before the record is there.
	defer func() {
		slices.SortStableFunc(known, func(a, b step) int { return a.At.Compare(b.At) })
		for i := range known {
			if known[i].First = i == 0; !known[i].First {
				known[i].After = known[i].At.Sub(known[i-1].At)
			}
		}
	}()
	if r.IsRequeue() {
		add("Requeued", "an operator started the input of one that had failed", "done", r.AcceptedAt)
	} else if r.Source == execution.Rerun && r.RerunOf == "" {
		add("Test", "an operator started it on the sample payload", "done", r.AcceptedAt)
	} else if r.Source == execution.Rerun {
		add("Run again", "an operator started it on the sample payload", "done", r.AcceptedAt)
	} else {
		add("Received", "the request arrived", "done", r.AcceptedAt)
	}
	add("Stored", "in the stream; from here on nothing is lost", "done", storedAt)
	if r.Status == execution.Rejected {
		add("Rejected", "recorded, but no run starts", "rejected", r.RecordedAt)
		return known, ""
	}
	add("Recorded", "in the database", "done", r.RecordedAt)
	add("Started", "a runner took it", "running", r.StartedAt)
	switch r.Status {
	case execution.Succeeded:
		add("Succeeded", "", "succeeded", r.FinishedAt)
	case execution.Failed:
		add("Failed", "", "failed", r.FinishedAt)
	case execution.Queued:
		waiting = "a runner of the queue " + r.Queue
	case execution.Running:
		waiting = "the runner's result"
	case execution.Rejected: // was said above
	}
	return known, waiting
}

// request reads an execution's message from the stream.
func (c *Console) request(ctx context.Context, r store.Record) (request, error) {
	from, err := c.JetStream.Stream(ctx, stream.Name)
	if err != nil {
		return request{}, err
	}
	msg, err := from.GetMsg(ctx, r.StreamSequence)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return request{}, nil
	}
	if err != nil {
		return request{}, err
	}
	event, err := stream.Decode(msg.Subject, msg.Header, msg.Data)
	switch {
	case err == nil && event.Start != nil && event.Start.ID == r.ID:
		start := event.Start
		return request{
			Known: true, Input: newDocument("input", start.Payload.Input(), wholeRecord(r.ID)),
			Headers: fields(start.Headers), Query: fields(start.Query), storedAt: msg.Time,
		}, nil
	case err == nil && event.Rejection != nil && event.Rejection.ID == r.ID:
		return request{Known: true, Headers: fields(event.Rejection.Headers), Query: fields(event.Rejection.Query), storedAt: msg.Time}, nil
	default:
		return request{}, nil // another message: the stream was made anew
	}
}

// wholeRecord is where an execution is as the API has it.
func wholeRecord(id string) string { return "/api/v1/executions/" + url.PathEscape(id) }

func fields(values execution.Values) []field {
	var list []field
	for name, all := range values {
		for _, value := range all {
			list = append(list, field{name, value})
		}
	}
	slices.SortFunc(list, func(a, b field) int { return strings.Compare(a.Name+"\x00"+a.Value, b.Name+"\x00"+b.Value) })
	return list
}

// reruns finds those made of an execution. The database knows only of what a rerun was
// made, so a bounded number of the workflow's reruns is looked through.
func (c *Console) reruns(ctx context.Context, of store.Record) (made []store.Record, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	since := store.Filter{WorkflowID: of.WorkflowID, Source: execution.Rerun, Since: of.AcceptedAt}
	all, err := c.Store.List(ctx, since, store.Position{}, maxReruns)
	if err != nil && ctx.Err() != nil {
		return nil, true, nil
	}
	for _, rerun := range all {
		if rerun.RerunOf == of.ID && !rerun.IsRequeue() {
			made = append(made, rerun)
		}
	}
	return made, len(all) == maxReruns, err
}
