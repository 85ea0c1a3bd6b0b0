package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/retry"
)

type executionTailCmd struct {
	Workflow string `type:"id" help:"Only this workflow's." placeholder:"ID"`
}

func (v *executionTailCmd) Run(s *session) error {
	if v.Workflow != "" {
		if _, err := s.client.Workflow(s.ctx, v.Workflow); isNotFound(err) {
			s.printNote("There is no workflow %q now: hookstart workflow list", v.Workflow)
		}
	}
	t := &executionTailer{
		session:     s,
		workflowID:  v.Workflow,
		startedAt:   s.now(),
		lastPrinted: map[string]printedState{},
		retryDelay:  minRetryDelay,
	}
	watch := &apiclient.ExecutionWatch{
		WorkflowID: v.Workflow,
		Gap:        t.printMissedChanges,
		Changed:    func(e api.Execution) error { return t.printChange(e, s.lastResponseBody) },
	}
	watch.Opened = func() error { return t.handleStreamOpened(watch.LastEventID != "") }
	for s.ctx.Err() == nil {
		err := s.client.Watch(s.ctx, watch)
		if t.isPermanentError(err) {
			return err
		}
		if t.caughtUp {
			t.caughtUp, t.connectionLostAt = false, s.now()
			if s.ctx.Err() == nil {
				s.printNote("hookstart: the connection is lost; connecting again")
			}
		}
		t.waitBeforeRetry()
	}
	return nil
}

// isPermanentError reports whether reconnecting after err is pointless, because the output cannot
// be written, the first attempt to connect failed, or the API refuses the call.
func (t *executionTailer) isPermanentError(err error) bool {
	if _, ok := errors.AsType[*writeError](err); ok {
		return true
	}
	p, ok := errors.AsType[*api.Problem](err)
	return t.ctx.Err() == nil && (!t.everConnected || ok &&
		p.Status < http.StatusInternalServerError)
}

const (
	minRetryDelay = 250 * time.Millisecond
	maxRetryDelay = 5 * time.Second
	// reconnectOverlap is a safety margin for the search for missed executions: the search begins
	// this long before the connection was lost.
	reconnectOverlap = time.Minute
	// maxRememberedStates is the maximum number of executions whose last printed state is
	// remembered.
	maxRememberedStates = 10_000
)

// executionTailer prints each change of an execution once, even if it has to reconnect in between.
type executionTailer struct {
	*session
	workflowID       string
	startedAt        time.Time // when the verb was started
	everConnected    bool
	caughtUp         bool      // whether a stream is open and all missed changes are printed
	connectionLostAt time.Time // when the last connection was lost
	retryDelay       time.Duration
	lastPrinted      map[string]printedState // keyed by execution ID
}

// printedState is the state in which an execution was last printed.
type printedState struct {
	status     string
	duplicates int64
}

// writeError means that the output can no longer be written.
type writeError struct{ error }

// waitBeforeRetry waits before the next attempt to connect, or until the context is done. Each wait
// is twice as long as the previous one, up to maxRetryDelay.
func (t *executionTailer) waitBeforeRetry() {
	retry.Sleep(t.ctx, t.retryDelay)
	t.retryDelay = min(2*t.retryDelay, maxRetryDelay)
}

// handleStreamOpened is called when an event stream has been opened. The first time, it prints the
// column headings, unless -o json is set. If a later stream does not resume where the previous one
// ended, it prints the changes that were missed in between.
func (t *executionTailer) handleStreamOpened(resumes bool) error {
	t.retryDelay = minRetryDelay
	if t.everConnected && !resumes {
		return t.printMissedChanges()
	}
	t.caughtUp = true
	if t.everConnected {
		return nil
	}
	t.everConnected = true
	if t.jsonOutput {
		return nil
	}
	t.printNote("Watching; Ctrl-C ends it.")
	return t.writeLine(fmt.Sprintf(tailLineFormat, "TIME (UTC)", "STATUS", "SOURCE", "EXECUTION",
		"WORKFLOW"))
}

// printMissedChanges prints the changes that were missed while there was no connection. To find
// them, it looks up the executions that were accepted in that time, and the executions whose last
// printed state is not final.
func (t *executionTailer) printMissedChanges() error {
	t.caughtUp = false
	missed, err := t.missedExecutions()
	if err != nil {
		return err
	}
	unfinished := map[string]bool{}
	for id, state := range t.lastPrinted {
		if !execution.Status(state.status).Final() {
			unfinished[id] = true
		}
	}
	for _, record := range slices.Backward(missed) {
		var e api.Execution
		if err := json.Unmarshal(record, &e); err != nil {
			return fmt.Errorf("read a record: %w", err)
		}
		if err := t.printChange(e, record); err != nil {
			return err
		}
		delete(unfinished, e.ExecutionID)
	}
	for id := range unfinished {
		if err := t.printCurrentState(id); err != nil {
			return err
		}
	}
	t.caughtUp = true
	return nil
}

// printCurrentState looks up an execution and prints it if its state has changed since it was last
// printed.
func (t *executionTailer) printCurrentState(id string) error {
	detail, err := t.client.Execution(t.ctx, id)
	if isNotFound(err) {
		delete(t.lastPrinted, id)
		return nil
	}
	if err != nil {
		return err
	}
	record, err := json.Marshal(detail.Execution)
	if err != nil {
		return err
	}
	return t.printChange(detail.Execution, record)
}

// missedExecutions returns the records of the executions that were accepted since the connection
// was lost, or at most reconnectOverlap before that, newest first. It omits those that were
// accepted before tail was started, and stops after roughly maxRememberedStates records.
func (t *executionTailer) missedExecutions() (records []json.RawMessage, err error) {
	filter, page := apiclient.ExecutionFilter{
		WorkflowID: t.workflowID,
		Since:      t.connectionLostAt.Add(-reconnectOverlap),
	}, apiclient.Page{Limit: api.MaxLimit}
	if filter.Since.Before(t.startedAt) {
		filter.Since = t.startedAt
	}
	for len(records) < maxRememberedStates {
		part, err := t.client.Executions(t.ctx, filter, page)
		if err != nil {
			return nil, err
		}
		items, err := t.rawResponseItems()
		if err != nil {
			return nil, err
		}
		records = append(records, items...)
		if page.Cursor = part.NextCursor; page.Cursor == "" {
			return records, nil
		}
	}
	t.printNote("hookstart: more than %d executions were missed; only the newest are shown",
		maxRememberedStates)
	return records, nil
}

// tailLineFormat is the format of one line. The line fits in 80 columns if the workflow's ID has at
// most 6 characters.
const tailLineFormat = "%-12s  %-9s  %-7s  %-36s  %s"

// printChange prints a change unless it has been printed already. record is the JSON of e as
// received from the API.
func (t *executionTailer) printChange(e api.Execution, record []byte) error {
	now := printedState{e.Status, e.Duplicates}
	if t.lastPrinted[e.ExecutionID] == now {
		return nil
	}
	if len(t.lastPrinted) >= maxRememberedStates {
		maps.DeleteFunc(t.lastPrinted, func(_ string, state printedState) bool {
			return execution.Status(state.status).Final()
		})
	}
	if len(t.lastPrinted) >= maxRememberedStates {
		clear(t.lastPrinted)
	}
	t.lastPrinted[e.ExecutionID] = now
	if t.jsonOutput {
		return t.writeLine(string(record))
	}
	at := e.AcceptedAt
	for _, later := range []time.Time{e.StartedAt, e.FinishedAt} {
		if !later.IsZero() {
			at = later
		}
	}
	workflow := e.WorkflowID
	if e.Duplicates > 0 {
		workflow += fmt.Sprintf(" +%d repeats", e.Duplicates)
	}
	return t.writeLine(sanitizeLine(fmt.Sprintf(tailLineFormat, at.UTC().Format("15:04:05.000"),
		e.Status,
		e.Source, e.ExecutionID, workflow)))
}

func (t *executionTailer) writeLine(line string) error {
	if _, err := fmt.Fprintln(t.Out, line); err != nil {
		return &writeError{err}
	}
	return nil
}
