package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/operators/signin"
	"github.com/hookstart/hookstart/shared/execution"
)

// The bulk forms change many dead letters or executions at once: either the selected items of a
// list, or all items that match the filters of the list. All bulk buttons of a list share one form
// element. Each button posts this element to a different address, whose query holds the filters.
// The page asks for confirmation before anything is changed.
//
// Each post changes a limited number of items. If more items may remain, the message asks the
// operator to press the button again. With JavaScript, post.js then posts the form again without
// the operator.

// bulkFormName is the name of the bulk forms.
const bulkFormName = "bulk"

// Names of the fields of the bulk forms.
const (
	listedAtField           = "listed-at" // when the page was rendered; no later items are changed
	selectedField           = "id"        // the IDs of the selected items
	askedCountField         = "asked"     // how many were selected when the page asked to confirm
	changedSoFarFieldPrefix = "so-far."   // how many items earlier posts of a script changed
)

// newBulkFormView returns the view of a list's bulk form. It stores the current time in the form,
// as the time at which the list was rendered.
func newBulkFormView(ctx context.Context) formView {
	return newFormView(ctx, bulkFormName, map[string]string{
		listedAtField: time.Now().UTC().Format(time.RFC3339Nano),
	})
}

// bulkDialog is the template data of the dialog in which the operator confirms a bulk change.
type bulkDialog struct {
	Action   string // last part of the path to which the form is posted
	Selected int    // number of selected items; 0 means all that match the filters
}

// ItemsPhrase returns a phrase for the items to change, such as "all that match" or "the 3
// selected".
func (d bulkDialog) ItemsPhrase() string {
	switch d.Selected {
	case 0:
		return "all that match"
	case 1:
		return "the selected one"
	default:
		return fmt.Sprintf("the %d selected", d.Selected)
	}
}

// requireBulkConfirmation is like requireConfirmation, but asks again if the number of selected
// items has changed since the page asked. Otherwise, an operator who clears the selection before
// confirming would change all items that match the filters, because an empty selection stands for
// all of them.
func (p *postedForm) requireBulkConfirmation(action string) error {
	dialog := bulkDialog{action, len(p.allValues[selectedField])}
	if p.values[askedCountField] != strconv.Itoa(dialog.Selected) {
		delete(p.values, "confirmed")
	}
	return p.requireConfirmation(&dialog)
}

// listedAt returns the time at which the page with the form was rendered.
func (p *postedForm) listedAt() (time.Time, error) {
	at, err := time.Parse(time.RFC3339Nano, p.values[listedAtField])
	if err != nil {
		return time.Time{}, incompleteFormError()
	}
	return at, nil
}

// bulkResult is the result of one call that changes many items.
type bulkResult struct {
	counts        []bulkCount // the items that were changed, by outcome
	skipped       []api.Left  // the items that could not be changed, by error code
	moreMayRemain bool        // another call may find more items to change
}

// bulkCount is the number of items with the same outcome. outcome describes this outcome, such as
// "dismissed".
type bulkCount struct {
	number  int
	outcome string
}

// bulkMessage returns the message that the form shows after a bulk call. If a script posts the form
// several times, the counts in the message include the items that its earlier posts changed.
//
// bulkMessage also sets repostValues, which makes a script post the form again. It does so only if
// the form was posted by a script, this post has changed at least one item, and more items may
// remain.
func (p *postedForm) bulkMessage(r *http.Request, result bulkResult) string {
	sum, before := 0, 0
	again := map[string]string{}
	var done []string
	for i, count := range result.counts {
		field := changedSoFarFieldPrefix + strconv.Itoa(i)
		soFar, _ := strconv.Atoi(p.values[field]) // invalid text counts as 0
		total := count.number + max(0, soFar)
		sum, before = sum+total, before+max(0, soFar)
		again[field] = strconv.Itoa(total)
		if i == 0 || total > 0 {
			done = append(done, fmt.Sprintf("%d %s", total, count.outcome))
		}
	}
	if result.moreMayRemain && sum > before && acceptsJSON(r) {
		p.repostValues = again
		return fmt.Sprintf("%d so far …", sum)
	}
	sentences := []string{strings.Join(done, ", ") + "."}
	for _, left := range result.skipped {
		code := strings.ReplaceAll(left.Code, "_", " ")
		sentences = append(sentences, fmt.Sprintf("%d skipped: %s.", left.Count, code))
	}
	switch {
	case result.moreMayRemain && sum > before:
		sentences = append(sentences, "There may be more: press the button again.")
	case result.moreMayRemain:
		sentences = append(sentences, "There may be more, but the time allowed ended first: "+
			"choose a shorter time span.")
	}
	return strings.Join(sentences, " ")
}

// requeueDeadLettersForm returns the form that requeues many dead letters.
func (c *Console) requeueDeadLettersForm() *form {
	return c.bulkDeadLettersForm("RequeueDeadLetters", "requeue", func(
		ctx context.Context, selected operate.DeadLetterSelection,
	) (bulkResult, error) {
		done, err := c.Operate.RequeueDeadLetters(ctx, signin.Caller(ctx), selected)
		return bulkResult{[]bulkCount{{done.Requeued, "retried"}}, done.Left, done.More}, err
	})
}

// dismissDeadLettersForm returns the form that dismisses many dead letters.
func (c *Console) dismissDeadLettersForm() *form {
	return c.bulkDeadLettersForm("DismissDeadLetters", "dismiss", func(
		ctx context.Context, selected operate.DeadLetterSelection,
	) (bulkResult, error) {
		done, err := c.Operate.DismissDeadLetters(ctx, signin.Caller(ctx), selected)
		return bulkResult{[]bulkCount{{done.Dismissed, "dismissed"}}, nil, done.More}, err
	})
}

// bulkDeadLettersForm returns a bulk form of the dead letters page. operation is the name of the
// form's operation, and action is the last part of the path to which the form is posted. call
// carries out the operation on the selected dead letters.
func (c *Console) bulkDeadLettersForm(
	operation, action string,
	call func(context.Context, operate.DeadLetterSelection) (bulkResult, error),
) *form {
	return &form{
		name:      bulkFormName,
		operation: operation,
		pageURL:   listPageURL("/dead-letters"),
		showPage:  c.deadLettersHandler(),
		save: func(r *http.Request, p *postedForm) (string, error) {
			at, err := p.listedAt()
			if err == nil {
				err = p.requireBulkConfirmation(action)
			}
			if err != nil {
				return "", err
			}
			selected := operate.DeadLetterSelection{IDs: p.allValues[selectedField]}
			if selected.IDs == nil {
				filter, _ := parseDeadLetterFilter(r.URL.Query())
				selected.Filter = filter.operateFilter(at)
				selected.Filter.Until = at
			}
			result, err := call(r.Context(), selected)
			return p.bulkMessage(r, result), err
		},
	}
}

// replayMatchingExecutionsForm returns the form that replays all rejected executions that match the
// filters of a list, except those that were rejected after the list was shown.
func (c *Console) replayMatchingExecutionsForm() *form {
	return c.matchingExecutionsForm("ReplayRejected", "replay", executionList.supportsBulkReplay,
		func(ctx context.Context, p executionList, at time.Time) (bulkResult, error) {
			done, err := c.Operate.ReplayRejected(ctx, signin.Caller(ctx), operate.ExecutionFilter{
				WorkflowID: p.SelectedWorkflow(), AccountID: p.Filter.Account,
				Since: timeSpanStart(p.Filter.Within, at), Until: at,
			}, "")
			return bulkResult{[]bulkCount{{done.Replayed, "run again"}}, done.Left, done.More}, err
		})
}

// cancelMatchingExecutionsForm returns the form that cancels all executions that match the filters
// of a list, except those that were accepted after the list was shown.
func (c *Console) cancelMatchingExecutionsForm() *form {
	return c.matchingExecutionsForm("CancelExecutions", "cancel", executionList.supportsBulkCancel,
		func(ctx context.Context, p executionList, at time.Time) (bulkResult, error) {
			done, err := c.Operate.CancelExecutions(ctx, signin.Caller(ctx),
				operate.CancelSelection{Filter: operate.ExecutionFilter{
					WorkflowID: p.SelectedWorkflow(), Status: execution.Status(p.Filter.Status),
					Since: timeSpanStart(p.Filter.Within, at), Until: at,
				}})
			return bulkResult{[]bulkCount{
				{done.Canceled, "canceled"}, {done.Requested, "asked to end"},
			}, nil, done.More}, err
		})
}

// matchingExecutionsForm returns a bulk form of a list of executions, either on a workflow's page
// or on the page of all executions. operation is the name of the form's operation, and action is
// the last part of the path to which the form is posted. offered reports whether a list with the
// given filters has the form. call changes the executions that match the list's filters and were
// accepted before the given time.
func (c *Console) matchingExecutionsForm(
	operation, action string, offered func(executionList) bool,
	call func(ctx context.Context, p executionList, at time.Time) (bulkResult, error),
) *form {
	return &form{
		name:      bulkFormName,
		operation: operation,
		pageURL: func(r *http.Request) string {
			path := "/executions"
			if id := r.PathValue("id"); id != "" {
				path = "/workflows/" + url.PathEscape(id)
			}
			return listPageURL(path)(r)
		},
		showPage: func(w http.ResponseWriter, r *http.Request) {
			if r.PathValue("id") != "" {
				c.showWorkflow(w, r)
				return
			}
			c.showExecutions(w, r)
		},
		save: func(r *http.Request, p *postedForm) (string, error) {
			list := executionList{WorkflowID: r.PathValue("id")}
			list.Filter, _ = parseExecutionListFilter(r.URL.Query())
			if !offered(list) {
				return "", &operate.Error{
					Code:   api.CodeNotFound,
					Detail: "A list with these filters has no such form.",
				}
			}
			at, err := p.listedAt()
			if err == nil {
				err = p.requireBulkConfirmation(action)
			}
			if err != nil {
				return "", err
			}
			result, err := call(r.Context(), list, at)
			return p.bulkMessage(r, result), err
		},
	}
}
