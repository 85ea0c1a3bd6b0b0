package ingress

import (
	"cmp"
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/hookstart/hookstart/ingress/internal/admission"
	"github.com/hookstart/hookstart/shared/sender"
	"github.com/hookstart/hookstart/shared/webhook"
)

// problem describes the response to a refusal. problemsByCode has one for each code.
type problem struct {
	status    int
	title     string
	detail    string
	retryable bool
	close     bool // the body was not read, so the connection cannot be reused
}

var problemsByCode = map[webhook.Code]problem{
	webhook.CodeMethodNotAllowed: {
		status: http.StatusMethodNotAllowed, title: "Method not allowed",
		detail: "A webhook is called with POST.",
	},
	webhook.CodeNotFound: {
		status: http.StatusNotFound, title: "Not found",
		detail: "The path of a webhook is /webhooks/{workflowId}, without anything after it.",
	},
	webhook.CodeWorkflowIDMissing: {
		status: http.StatusBadRequest, title: "Workflow ID missing",
		detail: "Put the workflow's ID into the path: /webhooks/{workflowId}?token={token}.",
	},
	webhook.CodeTokenMissing: {
		status: http.StatusBadRequest, title: "Token missing",
		detail: "Add the trigger node's token: the query parameter token or access_token, or the " +
			"header Authorization: Bearer.",
	},
	webhook.CodeBodyTooLarge: {
		status: http.StatusRequestEntityTooLarge, title: "Body too large",
		detail: "The body is longer than this endpoint accepts. Nothing was accepted.", close: true,
	},
	webhook.CodeWorkflowNotFound: {
		status: http.StatusNotFound, title: "Workflow not found",
		detail: "No workflow has this ID. Copy the webhook URL again.",
	},
	webhook.CodeTokenInvalid: {
		status: http.StatusForbidden, title: "Token invalid",
		detail: "The token belongs to no trigger node of this workflow; it may have been " +
			"rotated. Copy the webhook URL again.",
	},
	webhook.CodeWebhooksNotInPlan: {
		status: http.StatusForbidden, title: "Webhooks not in plan",
		detail: "The account's plan has no webhook triggers.",
	},
	webhook.CodePlanLimitExceeded: {
		status: http.StatusForbidden, title: "Plan limit exceeded",
		detail: "The account has more active webhook workflows than its plan allows, and this " +
			"one is past the limit.",
	},
	webhook.CodeSignatureMissing: {
		status: http.StatusUnauthorized, title: "Signature missing",
		detail: "The sender that is configured for this webhook signs its requests, and this one " +
			"has no signature.",
	},
	webhook.CodeSignatureInvalid: {
		status: http.StatusUnauthorized, title: "Signature invalid",
		detail: "The request is not signed with a secret of the sender that is configured for " +
			"this webhook, or was changed on its way.",
	},
	webhook.CodeSignatureExpired: {
		status: http.StatusUnauthorized, title: "Signature expired",
		detail: "The request was signed too long ago, or in the future: check the sender's clock.",
	},
	webhook.CodeRateLimited: {
		status: http.StatusTooManyRequests,
		title:  "Rate limited",
		detail: "The workflow is over its rate limit, or its account is over the bytes per day " +
			"of its plan.",
		retryable: true,
	},
	webhook.CodeWorkflowInactive: {
		status: http.StatusForbidden, title: "Workflow inactive",
		detail: "The workflow is not active. The request was recorded as a rejected execution; " +
			"no run starts.",
	},
	webhook.CodeDeliveryIDInvalid: {
		status: http.StatusBadRequest, title: "Delivery ID invalid",
		detail: "The delivery ID must not be longer than 255 bytes.",
	},
	webhook.CodeBodyUnreadable: {
		status: http.StatusBadRequest, title: "Body unreadable",
		detail: "The body broke off, or did not arrive in time.", retryable: true, close: true,
	},
	webhook.CodeJSONInvalid: {
		status: http.StatusBadRequest, title: "JSON invalid",
		detail: "The Content-Type is application/json, but the body is not one JSON text in UTF-8.",
	},
	webhook.CodeUnavailable: {
		status: http.StatusServiceUnavailable,
		title:  "Unavailable",
		detail: "The service is unavailable, and the request is not confirmed as stored. Send " +
			"it again.",
		retryable: true,
	},
	webhook.CodeOverloaded: {
		status:    http.StatusServiceUnavailable,
		title:     "Overloaded",
		detail:    "The service is overloaded, so nothing was accepted. Send it again.",
		retryable: true,
	},
	webhook.CodeStorageFull: {
		status:    http.StatusServiceUnavailable,
		title:     "Storage full",
		detail:    "The stream has no room for it, so nothing was accepted. Send it again later.",
		retryable: true,
	},
	webhook.CodeRunFailed: {
		status: http.StatusBadGateway, title: "Run failed",
		detail: "The request was accepted, and the run that it started did not succeed.",
	},
	webhook.CodeInternal: {
		status: http.StatusInternalServerError, title: "Internal error",
		detail: "The request could not be handled, and nothing was accepted.", retryable: true,
	},
}

// problemBody is the response body of a refusal: application/problem+json (RFC 9457), with members
// that this service adds.
type problemBody struct {
	Type       string       `json:"type"`
	Title      string       `json:"title"`
	Status     int          `json:"status"`
	Detail     string       `json:"detail"`
	Success    bool         `json:"success"`
	Code       webhook.Code `json:"code"`
	Retryable  bool         `json:"retryable"`
	RetryAfter int64        `json:"retryAfter,omitempty"`
	// Outcome is webhook.OutcomeUnknown if the message may have been stored, or "".
	Outcome     string `json:"outcome,omitempty"`
	ExecutionID string `json:"executionId,omitempty"`
}

// respond writes the response for the outcome out, and records it in the request's event.
func (h *handler) respond(d *delivery, out outcome) {
	switch {
	case out.refusal != nil:
		h.refuse(d, out.refusal, d.sender())
	case out.waitResult != nil:
		h.respondAfterWait(d, out)
	case out.response != nil:
		h.respondAsSenderRequires(d, out)
	case out.filtered:
		h.respondFiltered(d)
	default:
		h.respondAccepted(d, out.executionID, out.duplicate)
	}
}

// respondAsSenderRequires writes the response that the sender requires instead of the default one.
func (h *handler) respondAsSenderRequires(d *delivery, out outcome) {
	w, e, a := d.w, &d.event, out.response
	header := w.Header()
	header["Cache-Control"] = noStoreHeader
	if a.ContentType != "" {
		header.Set("Content-Type", a.ContentType)
		header.Set("X-Content-Type-Options", "nosniff")
	}
	for name, value := range a.Header {
		header.Set(name, value)
	}
	if out.executionID != "" {
		header[webhook.HeaderExecutionID] = []string{out.executionID}
	}
	if a.Status != http.StatusNoContent {
		header.Set("Content-Length", strconv.Itoa(len(a.Body)))
	}
	if d.bodyUnread {
		h.allowEarlyResponse(w)
	}
	h.extendWriteDeadline(d)
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body)
	e.status, e.executionID, e.duplicate, e.handshake, e.filtered = a.Status, out.executionID,
		out.duplicate, out.handshake, out.filtered
}

// refuse writes a refusal as a problem document, adapted to the node's sender s, which may be nil.
func (h *handler) refuse(d *delivery, why *admission.Refusal, s *sender.Sender) {
	w, r, e := d.w, d.r, &d.event
	p, refusal := adaptRefusalToSender(s, problemsByCode[why.Code], *why)
	body := problemBody{
		Type:        webhook.ProblemTypePrefix + string(refusal.Code),
		Title:       p.title,
		Status:      p.status,
		Detail:      cmp.Or(refusal.Detail, p.detail),
		Code:        refusal.Code,
		Retryable:   p.retryable,
		ExecutionID: refusal.ExecutionID,
	}
	if refusal.OutcomeUnknown {
		body.Outcome = webhook.OutcomeUnknown
	}
	header := w.Header()
	if refusal.RetryAfter > 0 {
		body.RetryAfter = ceilSeconds(refusal.RetryAfter)
		header.Set("Retry-After", strconv.FormatInt(body.RetryAfter, 10))
	}
	if refusal.ExecutionID != "" {
		header.Set(webhook.HeaderExecutionID, refusal.ExecutionID)
	}
	if refusal.Code == webhook.CodeMethodNotAllowed {
		header.Set("Allow", http.MethodPost)
	}
	if p.status == http.StatusUnauthorized && s != nil {
		header.Set("WWW-Authenticate", s.WWWAuthenticate())
	}
	// Announce that the connection will be closed in two cases: if the request has an Expect
	// header, because no 100 Continue is sent, and if the rest of the body is too long to drain.
	// Without the announcement, the connection could be reset while the client is still sending,
	// and the response could be lost.
	ends := p.close || r.Header.Get("Expect") != "" || r.ContentLength > maxDiscardedBodyBytes
	if ends {
		header.Set("Connection", "close")
		if d.bodyUnread {
			// Set a deadline for the rest of the body: before net/http closes the connection, it
			// reads up to 256 KB of it, without a deadline of its own (server.go, finishRequest).
			// Do this only if part of the body is unread: otherwise, the deadline would cancel the
			// request's context.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(h.bodyTimeout))
		}
		d.bodyUnread = false
	}
	text, err := json.Marshal(body)
	if err != nil {
		panic(err) // strings, numbers and booleans always marshal
	}
	header.Set("Content-Type", "application/problem+json")
	header.Set("Content-Length", strconv.Itoa(len(text)))
	header.Set("Cache-Control", "no-store")
	if d.bodyUnread {
		h.allowEarlyResponse(w)
	}
	h.extendWriteDeadline(d)
	w.WriteHeader(p.status)
	_, _ = w.Write(text)
	e.status, e.code, e.executionID = p.status, refusal.Code, refusal.ExecutionID
}

// ceilSeconds returns d in whole seconds, at least 1. It rounds up, so that a client that waits
// that long does not retry too early.
func ceilSeconds(d time.Duration) int64 {
	return max(1, int64(math.Ceil(d.Seconds())))
}

// Header values that never change. They are shared and must not be modified.
var (
	contentTypeJSON = []string{"application/json"}
	noStoreHeader   = []string{"no-store"}
)

// respondAccepted writes the 200 response to an accepted request. If duplicate is true, an earlier
// request with the same delivery ID started the execution; otherwise, this request did.
func (h *handler) respondAccepted(d *delivery, executionID string, duplicate bool) {
	w, e := d.w, &d.event
	body := append(d.responseBuffer[:0], `{"success":true,"executionId":"`...)
	body = append(body, executionID...)
	if duplicate {
		body = append(body, `","deduplicated":true}`...)
	} else {
		body = append(body, `"}`...)
	}
	header := w.Header()
	header["Content-Type"], header["Cache-Control"] = contentTypeJSON, noStoreHeader
	d.executionIDHeader[0] = executionID
	// net/http copies the headers in Write, so d can be reused afterwards.
	header[webhook.HeaderExecutionID] = d.executionIDHeader[:]
	h.extendWriteDeadline(d)
	_, _ = w.Write(body)
	e.status, e.executionID, e.duplicate = http.StatusOK, executionID, duplicate
}

// respondFiltered writes the 200 response to a request that does not match the node's filter and
// therefore started nothing.
func (h *handler) respondFiltered(d *delivery) {
	header := d.w.Header()
	header["Content-Type"], header["Cache-Control"] = contentTypeJSON, noStoreHeader
	h.extendWriteDeadline(d)
	_, _ = d.w.Write(append(d.responseBuffer[:0], `{"success":true,"filtered":true}`...))
	d.event.status, d.event.filtered = http.StatusOK, true
}

// extendWriteDeadline extends the write deadline of a request that has taken long. The server sets
// the deadline when it has read the headers, which leaves most requests enough time. Extending it
// for every request would cost too much CPU time.
func (h *handler) extendWriteDeadline(d *delivery) {
	if now := time.Now(); now.Sub(d.event.start) > h.responseTimeout/2 {
		// Ignore the error: if deadlines are not supported, there is none to extend.
		_ = http.NewResponseController(d.w).SetWriteDeadline(now.Add(h.responseTimeout))
	}
}
