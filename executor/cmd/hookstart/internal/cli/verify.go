package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/shared/retry"
)

type executionVerifyCmd struct {
	executionArg
	Wait time.Duration `help:"How long to wait for its record." default:"5s"`
}

// verificationStep is one step of an execution's path through the system.
type verificationStep struct {
	Name     string    `json:"step"`
	OK       bool      `json:"ok"`
	At       time.Time `json:"at,omitzero"`
	TimeText string    `json:"-"` // shown instead of the time if the time is not recorded
	Detail   string    `json:"detail"`
}

func (v *executionVerifyCmd) Run(s *session) error {
	// If the argument is "latest", wait until there is an execution, because the first one may not
	// have been recorded yet.
	isNone := func(err error) bool { return errors.Is(err, errNoExecution) }
	id, err := retryFor(s.ctx, v.Wait, isNone, func() (string,
		error,
	) {
		return v.resolveExecutionID(s)
	})
	if err != nil {
		return err
	}
	e, err := retryFor(s.ctx, v.Wait, isNotFound, func() (executionToVerify, error) {
		e, err := s.client.Execution(s.ctx, id)
		return executionToVerify{e}, err
	})
	if err != nil && !isNotFound(err) {
		return err
	}
	steps, missing := verificationSteps(e), error(nil)
	if err != nil {
		steps = stepsWithoutRecord(v.Wait)
		missing = &hintError{
			fmt.Errorf("execution %s has no record after %s", id, v.Wait),
			"is the ID one that a webhook answered? If so, the executor's /readyz says whether " +
				"it records; --wait waits longer",
		}
	} else if !e.messageStoredOrExpired() {
		missing = &hintError{
			fmt.Errorf("the stream has no message %d of execution %s any more", e.StreamSequence,
				id),
			"it was older than the executor's --stream-max-age, or the stream was made anew: a " +
				"runner that has not read it never will",
		}
	}
	if err := s.showSteps(id, steps, missing == nil); err != nil {
		return err
	}
	return missing
}

// executionToVerify is an execution whose path through the system is being verified.
type executionToVerify struct{ api.ExecutionDetail }

// messageStoredOrExpired reports whether the stream still has the execution's start message, or may
// have removed the message because of its age. By default, the stream keeps messages for a week.
func (e executionToVerify) messageStoredOrExpired() bool {
	const week = 7 * 24 * time.Hour
	return !e.InputExpired || time.Since(e.AcceptedAt) > week
}

// retryFor calls look repeatedly until it succeeds or its error is not temporary, but only until
// wait has passed or ctx is done. It returns the results of the last call. If the last error is
// temporary and ctx is done, the returned error includes ctx.Err().
func retryFor[T any](
	ctx context.Context, wait time.Duration, isTemporary func(error) bool, look func() (T, error),
) (found T, err error) {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	retry.Until(waiting, 100*time.Millisecond, func() bool {
		found, err = look() // the wait does not interrupt a call in progress
		return !isTemporary(err)
	})
	if isTemporary(err) {
		err = errors.Join(err, ctx.Err())
	}
	return found, err
}

func verificationSteps(e executionToVerify) []verificationStep {
	received := verificationStep{
		Name: "received", OK: true, At: e.AcceptedAt, Detail: "by an ingress",
	}
	if e.Source == "rerun" {
		received.Detail = "a rerun, from the operators' API or the console"
	}
	if e.DeliveryID != "" {
		received.Detail = "delivery " + e.DeliveryID
	}
	stored := verificationStep{
		Name:   "stored",
		OK:     e.messageStoredOrExpired(),
		At:     e.StoredAt,
		Detail: fmt.Sprintf("in the stream, sequence %d", e.StreamSequence),
	}
	if e.InputExpired {
		stored.Detail += "; no longer kept"
	}
	consumed := verificationStep{
		Name:     "consumed",
		OK:       true,
		TimeText: "before the record",
		Detail:   "by the executor, which acknowledges with the record",
	}
	recorded := verificationStep{
		Name:   "recorded",
		OK:     true,
		At:     e.RecordedAt,
		Detail: preciseDuration(e.RecordedAt.Sub(e.AcceptedAt)) + " after it was received",
	}
	if e.Duplicates > 0 {
		recorded.Detail += fmt.Sprintf("; %d repeats suppressed", e.Duplicates)
	}
	return []verificationStep{received, stored, consumed, recorded, stateStep(e.ExecutionDetail)}
}

func stateStep(e api.ExecutionDetail) verificationStep {
	state := verificationStep{Name: "state", OK: true, Detail: e.Status}
	switch e.Status {
	case "queued":
		state.TimeText = "now"
		state.Detail += ": no runner has said yet that it started"
	case "running":
		state.At = e.StartedAt
	case "succeeded", "failed":
		state.At = e.FinishedAt
		if !e.StartedAt.IsZero() {
			state.Detail += " after " + preciseDuration(e.FinishedAt.Sub(e.StartedAt))
		}
	}
	if e.Error != nil {
		state.Detail += ": " + *e.Error
	}
	return state
}

func stepsWithoutRecord(waited time.Duration) []verificationStep {
	return []verificationStep{
		{Name: "received", Detail: "not known: only the record tells"},
		{Name: "stored", Detail: "not known: only the record tells"},
		{Name: "consumed", Detail: "not known: only the record tells"},
		{Name: "recorded", Detail: fmt.Sprintf("not within %s", waited)},
		{Name: "state", Detail: "none"},
	}
}

func (s *session) showSteps(id string, steps []verificationStep, complete bool) error {
	var table [][]string
	for _, step := range steps {
		mark, at := "✗", cmp.Or(step.TimeText, "–")
		if step.OK {
			mark = "✓"
		}
		if !step.At.IsZero() {
			at = step.At.UTC().Format("2006-01-02 15:04:05.000Z")
		}
		table = append(table, []string{mark + " " + step.Name, at, step.Detail})
	}
	return s.printValue(struct {
		ExecutionID string             `json:"executionId"`
		Verified    bool               `json:"verified"`
		Steps       []verificationStep `json:"steps"`
	}{id, complete, steps}, func() error { return s.printRows(table) })
}
