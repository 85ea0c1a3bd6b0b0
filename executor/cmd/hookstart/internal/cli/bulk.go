package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hookstart/hookstart/executor/client/api"
)

// errFilterWithoutAll is the error for filter flags without --all. Requiring --all prevents users
// from applying a command to many objects by mistake.
var errFilterWithoutAll = &hintError{
	errors.New("--workflow, --reason, --since and --until say which of --all"),
	"hookstart dead-letter retry --help",
}

// countTrue returns the number of conditions that are true.
func countTrue(conditions ...bool) (n int) {
	for _, c := range conditions {
		if c {
			n++
		}
	}
	return n
}

// requeueAll requeues the selected dead letters. One API call requeues at most about 10,000, so
// requeueAll makes calls until none are left.
func (v *deadLetterRequeueCmd) requeueAll(s *session) error {
	return s.repeatBulkCall("retried", func() (int, []api.Left, bool, error) {
		done, err := s.client.RequeueDeadLetters(s.ctx, v.apiSelection())
		return done.Requeued, done.Left, done.More, err
	})
}

type deadLetterDismissCmd struct {
	DeadLetters []string `arg:"" optional:"" name:"dead-letter" help:"IDs of dead letters."`
	All         bool     `help:"All dead letters, or all that match --workflow, --reason, --since and --until."`
	deadLetterFilter
}

func (*deadLetterDismissCmd) Help() string {
	return `What is dismissed leaves the list. An execution stays failed, and can still be
retried, or run again, by its ID.

Examples:

  hookstart dead-letter dismiss message-12
  hookstart dead-letter dismiss --all --workflow demo --reason 'on purpose'`
}

func (v *deadLetterDismissCmd) Run(s *session) error {
	switch {
	case v.All == (len(v.DeadLetters) > 0):
		return &hintError{
			errors.New("name dead letters, or give --all"),
			"hookstart dead-letter list",
		}
	case v.isGiven() && !v.All:
		return errFilterWithoutAll
	}
	which := v.apiSelection()
	if !v.All {
		which.IDs = v.DeadLetters
	}
	return s.repeatBulkCall("dismissed", func() (int, []api.Left, bool, error) {
		done, err := s.client.DismissDeadLetters(s.ctx, which)
		return done.Dismissed, nil, done.More, err
	})
}

type executionRunAgainCmd struct {
	Execution string  `arg:"" optional:"" help:"The execution's ID, or latest."`
	Sample    bool    `help:"On the trigger node's sample payload, not on the execution's request."`
	Rejected  bool    `help:"All rejected executions, or all that match --workflow, --since and --until."`
	Workflow  string  `type:"id" help:"With --rejected: only this workflow's." placeholder:"ID"`
	Since     timeArg `help:"With --rejected: accepted then or later: like 2026-01-31T15:04:05Z, or like 1h or '2d ago'." placeholder:"TIME"`
	Until     timeArg `help:"With --rejected: accepted before." placeholder:"TIME"`
	Key       string  `help:"An idempotency key of your own: repeated with it, nothing starts twice." placeholder:"KEY"`
}

const runAgainHelpCommand = "hookstart execution run-again --help"

func (*executionRunAgainCmd) Help() string {
	return `Another execution starts on the same request: its body, headers and query. The
original must have ended, or have been rejected. With --sample it starts on the
sample payload of the trigger node. (dead-letter retry takes the place of an
execution that failed.)

With --rejected, what arrived while a workflow was not active starts, the oldest
first. It can be broken off and repeated: each one is run again once.

Examples:

  hookstart execution run-again latest
  hookstart execution run-again latest --sample
  hookstart execution run-again --rejected --workflow demo --since 2h`
}

func (v *executionRunAgainCmd) Run(s *session) error {
	switch {
	case v.Rejected == (v.Execution != ""):
		return &hintError{
			errors.New("name one execution, or give --rejected"),
			"hookstart execution list --status rejected",
		}
	case !v.Rejected && (v.Workflow != "" || !v.Since.IsZero() || !v.Until.IsZero()):
		return &hintError{
			errors.New(
				"--workflow, --since and --until say which of --rejected",
			), runAgainHelpCommand,
		}
	case v.Sample && (v.Rejected || v.Key != ""):
		return &hintError{
			errors.New("--sample goes with one execution, without --rejected and --key"),
			runAgainHelpCommand,
		}
	case v.Rejected:
		which := api.ReplayRejected{
			Status: "rejected", WorkflowID: v.Workflow, Since: v.Since.Time, Until: v.Until.Time,
		}
		return s.repeatBulkCall("run again", func() (int, []api.Left, bool, error) {
			done, err := s.client.ReplayRejected(s.ctx, which, v.Key)
			return done.Replayed, done.Left, done.More, err
		})
	}
	id, err := (&executionArg{v.Execution}).resolveExecutionID(s)
	if err != nil {
		return err
	}
	if v.Sample {
		return s.rerunOnSample(id)
	}
	started, err := s.client.ReplayExecution(s.ctx, id, v.Key)
	return s.printResultLine(err, "%s started on the original body of %s", started.ExecutionID, id)
}

// repeatBulkCall repeats call until no more objects match, and prints the total. call makes one
// bulk request. It returns the number of objects that it changed (n), the number that it skipped
// for each reason (left), and whether more objects may match (more). what is the past participle
// for the change, such as "retried". If call changes nothing although more may match,
// repeatBulkCall returns an error, because repeating call would not help.
func (s *session) repeatBulkCall(
	what string, call func() (n int, left []api.Left, more bool, err error),
) error {
	total := 0
	for {
		n, left, more, err := call()
		total += n
		if err != nil {
			if total > 0 {
				s.printNote("%d were %s before it failed; repeated, it goes on.", total, what)
			}
			return err
		}
		if s.jsonOutput {
			if err := s.printResponse(nil); err != nil {
				return err
			}
		} else if more && n > 0 {
			s.printNote("%d %s so far", total, what)
		}
		if more && n > 0 {
			continue
		}
		if !s.jsonOutput {
			if err := s.printBulkTotal(total, what, left); err != nil {
				return err
			}
		}
		if more {
			return &hintError{
				errors.New("more may match, but the last call ran out of time before them"),
				"use --since to leave out the oldest ones",
			}
		}
		return nil
	}
}

func (s *session) printBulkTotal(total int, what string, left []api.Left) error {
	parts := []string{fmt.Sprintf("%d %s", total, what)}
	for _, l := range left {
		parts = append(parts,
			fmt.Sprintf("%d skipped: %s", l.Count, strings.ReplaceAll(l.Code, "_", " ")))
	}
	return s.printLine("%s", strings.Join(parts, "; "))
}
