package cli

import (
	"errors"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/executor/apiclient"
)

type deadLetterVerbs struct {
	List    deadLetterList    `cmd:"" help:"List dead letters, the newest first."`
	Requeue deadLetterRequeue `cmd:"" help:"Start a failed execution again, on its original body."`
}

type deadLetterList struct {
	Workflow string `help:"Only this workflow's." placeholder:"ID"`
	paging
}

func (*deadLetterList) Help() string {
	return `Executions that failed and were not requeued, and messages that could not be
decoded. The latter cannot be requeued.

Example:

  hookstart dead-letter list --workflow demo`
}

// Run implements the verb.
func (v *deadLetterList) Run(s *session) error {
	return list(s, v.paging, func(p apiclient.Page) (api.List[api.DeadLetter], error) {
		return s.client.DeadLetters(s.ctx, v.Workflow, p)
	}, listing[api.DeadLetter]{
		// The reason comes last: it is the only cell that may be long.
		head: []string{"DEAD LETTER", "KIND", "ACCEPTED", "WORKFLOW", "REASON"},
		row: func(d api.DeadLetter) []string {
			workflow := d.WorkflowID
			if workflow == "" {
				workflow = "–"
			}
			return []string{d.ID, d.Kind, ago(d.At, s.now()), workflow, short(oneLine(d.Reason), 100)}
		},
		none: "No dead letters.",
	})
}

type deadLetterRequeue struct {
	DeadLetter string `arg:"" help:"The execution's ID, or latest: that of the newest."`
}

func (*deadLetterRequeue) Help() string {
	return `A new execution starts on the original's body, headers and query, and takes
its place; asked for again, it is the same one. (execution rerun starts on the
trigger node's sample payload.) With the demo, this makes a dead letter:
hookstart trigger send demo --data '{"fail":"on purpose"}'

Example:

  hookstart dead-letter requeue latest`
}

// Run implements the verb.
func (v *deadLetterRequeue) Run(s *session) error {
	id := v.DeadLetter
	if id == latest {
		var err error
		if id, err = latestDeadLetter(s); err != nil {
			return err
		}
	}
	before, _ := s.client.Execution(s.ctx, id) // what is none cannot be requeued, either, and that says why
	started, err := s.client.RequeueExecution(s.ctx, id)
	if problem, is := errors.AsType[*api.Problem](err); is && problem.Code == api.CodeNotFailed {
		return &hintError{err, "hookstart dead-letter list; execution rerun starts any one again, on the sample payload"}
	}
	if err != nil {
		return err
	}
	return s.print(func() error {
		if before.RequeuedAs == started.ExecutionID {
			return s.line("%s was requeued before, as %s", id, started.ExecutionID)
		}
		return s.line("%s started on the original body of %s", started.ExecutionID, id)
	})
}

// latestDeadLetter is the newest that can be requeued.
func latestDeadLetter(s *session) (string, error) {
	page := apiclient.Page{Limit: api.MaxLimit}
	for {
		found, err := s.client.DeadLetters(s.ctx, "", page)
		if err != nil {
			return "", err
		}
		for _, d := range found.Items {
			if d.Kind == api.DeadLetterFailed {
				return d.ID, nil
			}
		}
		if page.Cursor = found.NextCursor; page.Cursor == "" {
			return "", &hintError{errors.New("there is no failed execution that was not requeued"), "hookstart dead-letter list"}
		}
	}
}
