package cli

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
)

type executionCmds struct {
	List     executionListCmd     `cmd:"" help:"List executions, the newest first." example:"hookstart execution list --workflow demo --status queued --since 1h"`
	Show     executionShowCmd     `cmd:"" help:"Show an execution, with its input." example:"hookstart execution show latest"`
	Tail     executionTailCmd     `cmd:"" help:"Watch executions change." detail:"Ctrl-C ends it. It connects again when the executor restarts. With -o json each change is one line." example:"hookstart execution tail --workflow demo"`
	RunAgain executionRunAgainCmd `cmd:"" name:"run-again" aliases:"replay" help:"Run executions again: on the same request, or on the sample payload."`
	Rerun    executionRerunCmd    `cmd:"" hidden:"" help:"Run the same trigger again, on its sample payload." detail:"The same as run-again --sample." example:"hookstart execution rerun latest"`
	Cancel   executionCancelCmd   `cmd:"" help:"Cancel executions that have not ended." detail:"One that no runner was given is canceled at once; one that runs is asked to end." example:"hookstart execution cancel --workflow demo --since 1h"`
	Verify   executionVerifyCmd   `cmd:"" help:"Check an execution's way: received, stored, consumed, recorded, state." detail:"One line for each step, with ✓ or ✗. The exit code is 1 if one is missing." example:"hookstart execution verify latest"`
}

// latestKeyword is the argument that stands for the ID of the newest execution.
const latestKeyword = "latest"

type executionArg struct {
	Execution string `arg:"" help:"The execution's ID, or latest."`
}

// errNoExecution is the error for the argument "latest" if there is no execution yet.
var errNoExecution = errors.New("there is no execution yet")

func (e *executionArg) resolveExecutionID(s *session) (string, error) {
	if e.Execution != latestKeyword {
		return e.Execution, nil
	}
	newest, err := s.client.Executions(s.ctx, apiclient.ExecutionFilter{}, apiclient.Page{Limit: 1})
	if err != nil {
		return "", err
	}
	if len(newest.Items) == 0 {
		return "", &hintError{errNoExecution, "hookstart trigger send demo"}
	}
	return newest.Items[0].ExecutionID, nil
}

type executionListCmd struct {
	Account    string  `type:"id" help:"Only this account's." placeholder:"ID"`
	Workflow   string  `type:"id" help:"Only this workflow's." placeholder:"ID"`
	Status     string  `help:"queued, running, succeeded, failed, rejected or canceled." enum:",queued,running,succeeded,failed,rejected,canceled" default:"" placeholder:"STATUS"`
	Source     string  `help:"webhook, rerun or event." enum:",webhook,rerun,event" default:"" placeholder:"SOURCE"`
	DeliveryID string  `name:"delivery-id" help:"Only this delivery's." placeholder:"ID"`
	Since      timeArg `help:"Accepted then or later: like 2026-01-31T15:04:05Z, or like 1h or '2d ago'." placeholder:"TIME"`
	Until      timeArg `help:"Accepted before." placeholder:"TIME"`
	paging
}

func (v *executionListCmd) Run(s *session) error {
	filter := apiclient.ExecutionFilter{
		AccountID:  v.Account,
		WorkflowID: v.Workflow,
		Status:     v.Status,
		Source:     v.Source,
		DeliveryID: v.DeliveryID,
		Since:      v.Since.Time,
		Until:      v.Until.Time,
	}
	return printList(s, v.paging, func(p apiclient.Page) (api.List[api.Execution], error) {
		return s.client.Executions(s.ctx, filter, p)
	}, listFormat[api.Execution]{
		// The workflow comes last because it is the only cell that may be long.
		header: []string{
			"EXECUTION", "STATUS", "SOURCE", "ATTEMPTS", "ACCEPTED", "QUEUE", "WORKFLOW",
		},
		formatRow: func(e api.Execution) []string {
			return []string{
				e.ExecutionID,
				e.Status,
				e.Source,
				attemptsText(e.Attempts),
				ago(e.AcceptedAt, s.now()),
				e.Queue,
				e.WorkflowID,
			}
		},
		emptyListHint: "No such executions.",
	})
}

// attemptsText formats a number of attempts for a table. It returns "-" for 0.
func attemptsText(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

type executionRerunCmd struct{ executionArg }

func (v *executionRerunCmd) Run(s *session) error {
	id, err := v.resolveExecutionID(s)
	if err != nil {
		return err
	}
	return s.rerunOnSample(id)
}

// rerunOnSample starts a new execution with the sample payload of the trigger node that started the
// given execution.
func (s *session) rerunOnSample(id string) error {
	started, err := s.client.RerunExecution(s.ctx, id)
	if err != nil {
		if original, unknown := s.client.Execution(s.ctx, id); unknown == nil {
			err = withSampleHint(err, original.WorkflowID, original.NodeID)
		}
	}
	return s.printResultLine(err, "%s started on the sample payload", started.ExecutionID)
}

type executionShowCmd struct{ executionArg }

func (v *executionShowCmd) Run(s *session) error {
	id, err := v.resolveExecutionID(s)
	if err != nil {
		return err
	}
	e, err := s.client.Execution(s.ctx, id)
	if err != nil {
		return err
	}
	return s.printResponse(func() error { return s.showExecution(e) })
}

func (s *session) showExecution(e api.ExecutionDetail) error {
	table := [][]string{
		{"Execution", e.ExecutionID},
		{"Status", e.Status},
		{"Workflow", e.WorkflowID + ", node " + e.NodeID + ", account " + e.AccountID},
		{"Source", e.Source},
	}
	add := func(name, value string) {
		if value != "" {
			table = append(table, []string{name, value})
		}
	}
	add("Rerun of", e.RerunOf)
	add("Replay of", e.ReplayOf)
	add("Retried as", e.RequeuedAs)
	if !e.CancelRequestedAt.IsZero() {
		add("Cancel asked", agoAndExact(e.CancelRequestedAt, s.now()))
	}
	if !e.DismissedAt.IsZero() {
		add("Dismissed", agoAndExact(e.DismissedAt, s.now()))
	}
	if e.Sender != "" {
		verified := ", not verified"
		if e.Verified {
			verified = ", verified"
		}
		add("Sender", e.Sender+verified)
	}
	add("Delivery ID", e.DeliveryID)
	add("Queue", e.Queue)
	add("Order key", e.OrderKey)
	if e.Attempts > 0 {
		add("Attempts", strconv.Itoa(e.Attempts))
	}
	add("Repeats", fmt.Sprintf("%d suppressed", e.Duplicates))
	add("Stream sequence", strconv.FormatUint(e.StreamSequence, 10))
	add("Body", strings.TrimSuffix(fmt.Sprintf("%d bytes, %s", e.BodyBytes, e.ContentType), ", "))
	add("Accepted", agoAndExact(e.AcceptedAt, s.now()))
	add("Stored", timeWithElapsed(time.Time{}, e.StoredAt))
	add("Recorded", timeWithElapsed(e.AcceptedAt, e.RecordedAt))
	add("Started", timeWithElapsed(e.AcceptedAt, e.StartedAt))
	add("Finished", timeWithElapsed(e.StartedAt, e.FinishedAt))
	if e.Error != nil {
		add("Error", *e.Error)
	}
	if err := s.printRows(table); err != nil {
		return err
	}
	if e.InputExpired {
		return s.printLine("Input, headers and query: gone; the stream no longer has the message")
	}
	for _, part := range []struct{ name, text string }{
		{"Query", headerLinesText(e.Query)},
		{"Headers", headerLinesText(e.Headers)},
		{"Input", indentJSON(e.Input)},
		{"Output", indentJSON(e.Output)},
	} {
		if part.text == "" || part.text == "null" {
			continue
		}
		if _, err := fmt.Fprintf(s.Out, "\n%s\n  %s\n", part.name,
			strings.ReplaceAll(part.text, "\n", "\n  ")); err != nil {
			return err
		}
	}
	return nil
}

// headerLinesText returns headers or query parameters as text, with one name and value per line.
func headerLinesText(fields map[string][]string) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		for _, value := range fields[name] {
			all = append(all, sanitizeLine(name+": "+value))
		}
	}
	return strings.Join(all, "\n")
}

type executionCancelCmd struct {
	Execution string  `arg:"" optional:"" help:"The execution's ID, or latest."`
	Workflow  string  `type:"id" help:"All of this workflow that have not ended." placeholder:"ID"`
	Since     timeArg `help:"With --workflow: accepted then or later." placeholder:"TIME"`
	Until     timeArg `help:"With --workflow: accepted before." placeholder:"TIME"`
}

func (v *executionCancelCmd) Run(s *session) error {
	if v.Execution == "" {
		return v.cancelWorkflowExecutions(s)
	}
	if v.Workflow != "" || !v.Since.IsZero() || !v.Until.IsZero() {
		return errors.New("name an execution, or --workflow with --since and --until, not both")
	}
	arg := executionArg{v.Execution}
	id, err := arg.resolveExecutionID(s)
	if err != nil {
		return err
	}
	e, err := s.client.CancelExecution(s.ctx, id)
	if err == nil && e.Status != api.StatusCanceled {
		return s.printResultLine(nil, "%s is asked to end", id)
	}
	return s.printResultLine(err, "%s is canceled", id)
}

// cancelWorkflowExecutions cancels the executions of a workflow that the flags --workflow, --since
// and --until select. It repeats the call until no more executions match.
func (v *executionCancelCmd) cancelWorkflowExecutions(s *session) error {
	if v.Workflow == "" {
		return errors.New("name an execution, or --workflow: all of it that have not ended")
	}
	var all api.Canceled
	for {
		done, err := s.client.CancelExecutions(s.ctx, api.CancelExecutions{
			WorkflowID: v.Workflow,
			Since:      v.Since.Time,
			Until:      v.Until.Time,
		})
		if err != nil {
			return err
		}
		all.Canceled, all.Requested = all.Canceled+done.Canceled, all.Requested+done.Requested
		if !done.More {
			return s.printResultLine(nil, "%d canceled, %d asked to end", all.Canceled,
				all.Requested)
		}
	}
}
