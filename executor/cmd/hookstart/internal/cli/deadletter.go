package cli

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
)

type deadLetterCmds struct {
	List    deadLetterListCmd    `cmd:"" help:"List dead letters, the newest first."`
	Retry   deadLetterRequeueCmd `cmd:"" aliases:"requeue" help:"Start failed executions again, or record messages that were put aside."`
	Dismiss deadLetterDismissCmd `cmd:"" help:"Take dead letters off the list."`
}

// deadLetterFilter holds the flags that select dead letters.
type deadLetterFilter struct {
	Workflow string  `type:"id" help:"Only this workflow's." placeholder:"ID"`
	Reason   string  `help:"Only those whose reason has this text in it." placeholder:"TEXT"`
	Since    timeArg `help:"Accepted then or later: like 2026-01-31T15:04:05Z, or like 1h or '2d ago'." placeholder:"TIME"`
	Until    timeArg `help:"Accepted before." placeholder:"TIME"`
}

func (f deadLetterFilter) isGiven() bool {
	return f.Workflow != "" || f.Reason != "" || !f.Since.IsZero() || !f.Until.IsZero()
}

func (f deadLetterFilter) apiSelection() api.SelectDeadLetters {
	return api.SelectDeadLetters{
		WorkflowID: f.Workflow, Reason: f.Reason, Since: f.Since.Time, Until: f.Until.Time,
	}
}

type deadLetterListCmd struct {
	deadLetterFilter
	paging
}

func (*deadLetterListCmd) Help() string {
	return `Executions that failed and were neither retried nor dismissed, messages that the
database refused, and messages that could not be decoded. The last cannot be
retried.

Example:

  hookstart dead-letter list --workflow demo`
}

func (v *deadLetterListCmd) Run(s *session) error {
	return printList(s, v.paging, func(p apiclient.Page) (api.List[api.DeadLetter], error) {
		return s.client.DeadLetters(s.ctx, apiclient.DeadLetterFilter{
			WorkflowID: v.Workflow, Reason: v.Reason, Since: v.Since.Time, Until: v.Until.Time,
		}, p)
	}, listFormat[api.DeadLetter]{
		// The reason comes last because it is the only cell that may be long.
		header: []string{"DEAD LETTER", "KIND", "ACCEPTED", "WORKFLOW", "REASON"},
		formatRow: func(d api.DeadLetter) []string {
			return []string{
				d.ID, d.Kind, ago(d.At, s.now()), cmp.Or(d.WorkflowID, "–"),
				truncateForDisplay(sanitizeLine(d.Reason), 100),
			}
		},
		emptyListHint: "No dead letters.",
	})
}

type deadLetterRequeueCmd struct {
	DeadLetter string `arg:"" optional:"" help:"The execution's ID, message- and a stream sequence, or latest: the newest failed execution."`
	Refused    bool   `help:"All messages that the database refused."`
	Verbose    bool   `short:"v" help:"With --refused, a line for each message."`
	All        bool   `help:"All dead letters, or all that match --workflow, --reason, --since and --until."`
	deadLetterFilter
}

func (*deadLetterRequeueCmd) Help() string {
	return `A new execution starts on the original's body, headers and query, and takes
its place; asked for again, it is the same one. (execution run-again starts another
one beside it.) With the demo, this makes a dead letter:
hookstart trigger send demo --data '{"fail":"on purpose"}'

Of a message that was put aside (message-12), the record is made that is missing,
under the execution ID that the sender was told. Nothing is started: runners got
the message all the same. It can be repeated.

Examples:

  hookstart dead-letter retry latest
  hookstart dead-letter retry message-12
  hookstart dead-letter retry --refused
  hookstart dead-letter retry --all --workflow demo --since 1h

With --all it goes on until nothing is left that can be retried. It can be
broken off and repeated: each one is retried once.`
}

func (v *deadLetterRequeueCmd) Run(s *session) error {
	id := v.DeadLetter
	switch {
	case countTrue(id != "", v.Refused, v.All) != 1:
		return &hintError{
			errors.New("name one dead letter, or give --refused or --all"),
			"hookstart dead-letter list",
		}
	case v.isGiven() && !v.All:
		return errFilterWithoutAll
	case v.All:
		return v.requeueAll(s)
	case v.Refused:
		return v.requeueRefusedMessages(s)
	}
	if id == latestKeyword {
		var err error
		if id, err = latestFailedExecutionID(s); err != nil {
			return err
		}
	}
	// Ignore the error: if there is no such execution, RequeueExecution returns an error that says
	// so.
	before, _ := s.client.Execution(s.ctx, id)
	started, err := s.client.RequeueExecution(s.ctx, id)
	switch {
	case api.IsCode(err, api.CodeNotFailed):
		return &hintError{
			err, "hookstart dead-letter list; " +
				"execution run-again starts any one that has ended again",
		}
	case strings.HasPrefix(id, "message-") || strings.HasPrefix(id, "report-"):
		return s.printResultLine(err, "%s is recorded, from %s", started.ExecutionID, id)
	case before.RequeuedAs == started.ExecutionID:
		return s.printResultLine(err, "%s was retried before, as %s", id, started.ExecutionID)
	default:
		return s.printResultLine(err, "%s started on the original body of %s", started.ExecutionID,
			id)
	}
}

// requeueRefusedMessages requeues the dead letters of all messages that the database refused, so
// that the messages are recorded. If the database refuses a message again, requeueRefusedMessages
// continues with the next dead letter.
func (v *deadLetterRequeueCmd) requeueRefusedMessages(s *session) error {
	var ids []string
	for d, err := range s.allDeadLetters() {
		if err != nil {
			return err
		}
		if d.Kind == api.DeadLetterRefused {
			ids = append(ids, d.ID)
		}
	}
	if len(ids) == 0 {
		s.printNote("No messages that the database refused.")
		return nil
	}
	var failed []error
	for _, id := range ids {
		started, err := s.client.RequeueExecution(s.ctx, id)
		if v.Verbose || s.jsonOutput {
			err = s.printResultLine(err, "%s is recorded, from %s", started.ExecutionID, id)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", id, err))
		}
	}
	if !s.jsonOutput {
		recorded := len(ids) - len(failed)
		if err := s.printLine("%d of %d messages are recorded.", recorded, len(ids)); err != nil {
			return err
		}
	}
	return errors.Join(failed...)
}

// latestFailedExecutionID returns the ID of the newest failed execution among the dead letters.
func latestFailedExecutionID(s *session) (string, error) {
	for d, err := range s.allDeadLetters() {
		if err != nil || d.Kind == api.DeadLetterFailed {
			return d.ID, err
		}
	}
	return "", &hintError{
		errors.New("there is no failed execution that was not retried"),
		"hookstart dead-letter list",
	}
}

// allDeadLetters iterates over all dead letters, newest first.
func (s *session) allDeadLetters() iter.Seq2[api.DeadLetter, error] {
	return apiclient.Items(func(p apiclient.Page) (api.List[api.DeadLetter], error) {
		return s.client.DeadLetters(s.ctx, apiclient.DeadLetterFilter{}, p)
	})
}
