package ingress

import (
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/hookstart/hookstart/ingress/internal/admission"
	"github.com/hookstart/hookstart/ingress/internal/await"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/sender"
	"github.com/hookstart/hookstart/shared/webhook"
)

// waitResult is the result of the execution that a response waited for. If the response stopped
// waiting, it is the execution's state at that time.
type waitResult struct {
	await.Result

	raw  bool                // the output is the response body
	form sender.OutputFormat // the form in which the sender expects an output
}

// startAndWait starts an execution and waits for it to finish. The time limit counts from the start
// of the request, not of the wait, so that a sender knows how long a response may take.
func (h *handler) startAndWait(d *delivery, a *registry.SyncResponse, id string) outcome {
	w := d.trigger.Workflow
	wait, err := h.waits.Begin(await.Execution{
		ID: id, AccountID: w.AccountID, WorkflowID: w.ID, Queue: w.Queue,
		Layout: d.layout, HasOwnStream: d.permit.HasOwnStream,
	})
	if err != nil { // the connection is closed for good: nothing can be stored either
		d.permit.Release()
		d.event.err = err
		return *refusalOutcome(webhook.CodeUnavailable, retryAfterUnavailable)
	}
	defer wait.End()
	out := h.storeStart(d, id)
	if out.refusal != nil {
		return out
	}
	got := &waitResult{
		Result: await.Result{Reason: await.ReasonTooManyWaits, Status: execution.Queued},
		raw:    a.Raw || out.response != nil,
	}
	if s := d.sender(); s != nil {
		got.form = s.OutputFormat(&d.request)
	}
	out.waitResult = got
	if wait != nil {
		if out.duplicate {
			wait.ExpectEarlierStart(h.queuesWithOwnStreams())
		}
		h.awaitExecution(d, a, wait, got)
	}
	d.event.waitEndReason = got.Reason
	return out
}

// awaitExecution waits for an execution to finish. Meanwhile the request does not count as in
// flight and does not hold the buffers of its body.
func (h *handler) awaitExecution(
	d *delivery, a *registry.SyncResponse, wait *await.Wait, got *waitResult,
) {
	d.reservation.release()
	d.payload, d.request = execution.Payload{}, sender.Request{} // with the parsed body
	(&delivery{buffers: d.detach(), reservation: bodyReservation{reserved: -1}}).release()
	began := time.Now()
	limit := d.event.start.Add(time.Duration(a.WaitSeconds) * time.Second)
	// Extend the write deadline. The server's own deadline counts from the headers and may pass
	// while the request waits; HTTP/2 would then reset the stream. Ignore the error: if deadlines
	// are not supported, there is none to extend.
	_ = http.NewResponseController(d.w).SetWriteDeadline(limit.Add(2 * h.responseTimeout))
	got.Result = wait.Await(d.r.Context(), limit, func(bytes int) bool {
		return h.reserveOutput(d, bytes)
	})
	d.event.waitDuration = time.Since(began)
}

// reserveOutput reserves memory for an execution's output until the response has been sent, and
// reports whether enough memory was free. Outputs count against the same limits as bodies.
func (h *handler) reserveOutput(d *delivery, bytes int) bool {
	account := d.trigger.Workflow.AccountID
	if !h.limiter.reserveSlot(account, int64(bytes)) {
		return false
	}
	d.reservation = bodyReservation{h: h, accountID: account, reserved: int64(bytes)}
	return true
}

// respondAfterWait responds to a request that waited for its execution.
func (h *handler) respondAfterWait(d *delivery, out outcome) {
	switch w := out.waitResult; {
	case out.response != nil &&
		(!w.Status.Final() || w.Status == execution.Succeeded && isNullOrEmpty(w.Output)):
		// The sender requires a certain response to an accepted request. Use it if the execution
		// has not finished yet, or has succeeded without an output, because there is no result to
		// report.
		h.respondAsSenderRequires(d, out)
	case !w.Status.Final() || !w.raw:
		h.respondResult(d, out)
	case w.Status != execution.Succeeded:
		h.respondRunFailed(
			d,
			out,
			"The request was accepted, and the run that it started has "+
				""+finalStatusPhrases[w.Status]+".",
		)
	default:
		h.respondOutput(d, out)
	}
	d.event.duplicate = out.duplicate
}

// finalStatusPhrases maps each final status of an execution that did not succeed to words that
// complete the sentence "The run has …".
var finalStatusPhrases = map[execution.Status]string{
	execution.Failed:   "failed",
	execution.Canceled: "been canceled",
}

// isNullOrEmpty reports whether an execution's output is empty or null.
func isNullOrEmpty(output []byte) bool { return len(output) == 0 || string(output) == "null" }

// respondRunFailed responds with 502, because the execution has no output that could be the
// response. detail explains why.
func (h *handler) respondRunFailed(d *delivery, out outcome, detail string) {
	h.refuse(d, &admission.Refusal{
		Code:        webhook.CodeRunFailed,
		ExecutionID: out.executionID,
		Detail:      detail,
	}, nil)
}

// respondResult responds with 200 and the result of the execution. If the execution has not
// finished, it responds with 202 and the execution's status.
func (h *handler) respondResult(d *delivery, out outcome) {
	body := append(make([]byte, 0, 160+len(out.waitResult.Output)),
		`{"success":true,"executionId":"`...)
	body = append(append(body, out.executionID...), '"')
	if out.duplicate {
		body = append(body, `,"deduplicated":true`...)
	}
	body = append(append(append(body, `,"status":"`...), out.waitResult.Status...), '"')
	if len(out.waitResult.Output) > 0 {
		body = append(append(body, `,"output":`...), out.waitResult.Output...)
	}
	if out.waitResult.Error != "" {
		body = append(append(body, `,"error":`...), encodeJSONString(out.waitResult.Error)...)
	}
	body = append(body, '}')
	status := http.StatusOK
	if !out.waitResult.Status.Final() {
		status = http.StatusAccepted
	}
	h.write(d, out, status, contentTypeJSON, body)
}

// respondOutput responds with the output of an execution that succeeded.
func (h *handler) respondOutput(d *delivery, out outcome) {
	response, err := responseFromOutput(out.waitResult.Output, out.waitResult.form)
	if err != nil {
		d.event.err = err
		h.respondRunFailed(d, out,
			"The run has succeeded, but its output cannot be the answer: "+err.Error()+".")
		return
	}
	header := d.w.Header()
	maps.Copy(header, response.headers)
	d.event.statusFromOutput = response.setsStatus
	h.write(d, out, response.status, response.contentType, response.body)
}

// write writes a response. contentType is nil if there is no body, or if the response header
// already contains the Content-Type.
func (h *handler) write(d *delivery, out outcome, status int, contentType []string, body []byte) {
	header := d.w.Header()
	if contentType != nil {
		header["Content-Type"] = contentType
	}
	if header["Cache-Control"] == nil {
		header["Cache-Control"] = noStoreHeader
	}
	header["X-Content-Type-Options"] = noSniff
	header[webhook.HeaderExecutionID] = []string{out.executionID}
	if status != http.StatusNoContent && status != http.StatusNotModified {
		header["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	h.extendWriteDeadline(d)
	d.w.WriteHeader(status)
	_, _ = d.w.Write(body)
	d.event.status, d.event.executionID = status, out.executionID
}

var noSniff = []string{"nosniff"}
