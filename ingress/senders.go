package ingress

import (
	"fmt"
	"net/http"
	"time"

	"github.com/hookstart/hookstart/ingress/internal/admission"
	"github.com/hookstart/hookstart/ingress/internal/report"
	"github.com/hookstart/hookstart/shared/sender"
	"github.com/hookstart/hookstart/shared/webhook"
)

// refuseUnverified refuses a request that could not be verified. It reports the reason to
// operators, but does not reveal it to the client.
func (h *handler) refuseUnverified(d *delivery, v sender.Verdict, now time.Time) *outcome {
	h.senders.Observe(d.trigger.Workflow.ID, d.trigger.NodeID, d.senderPreset(),
		report.SenderObservation{
			RefusedAt:     now,
			RefusedCode:   string(v.Code),
			RefusedReason: v.Reason,
		})
	if counter := h.metrics.unverified[signatureRefusalLabels{
		d.senderPreset(),
		v.Code,
	}]; counter != nil {
		counter.Inc()
	}
	return &outcome{refusal: &admission.Refusal{Code: v.Code}}
}

// countVerified counts a verified request of the node's sender, whether or not it starts an
// execution.
func (h *handler) countVerified(d *delivery, now time.Time) {
	preset := d.senderPreset()
	h.senders.Observe(d.trigger.Workflow.ID, d.trigger.NodeID, preset,
		report.SenderObservation{VerifiedAt: now})
	h.metrics.verified[preset].Inc()
}

// countSenderDelivery counts a stored delivery of the node's sender for the next report to the
// executors. Deliveries without a delivery ID are also counted separately.
func (h *handler) countSenderDelivery(d *delivery) {
	h.senders.Observe(d.trigger.Workflow.ID, d.trigger.NodeID, d.senderPreset(),
		report.SenderObservation{DeliveryStored: true, WithoutID: d.id.ID == ""})
}

// temporaryRefusalStatus replaces the 4xx status of a temporary refusal if the sender does not
// retry after a 4xx.
const temporaryRefusalStatus = http.StatusServiceUnavailable

// retryAfterInactive is the Retry-After of a request to an inactive workflow if the sender does not
// retry after a 4xx.
const retryAfterInactive = time.Minute

// adaptRefusalToSender adapts a refusal to the node's sender s, which may be nil. A sender that
// does not retry after a 4xx gets a 503 for a rate limit or an inactive workflow.
func adaptRefusalToSender(
	s *sender.Sender, p problem, refusal admission.Refusal,
) (problem, admission.Refusal) {
	if s == nil || !s.GivesUpOn4xx() {
		return p, refusal
	}
	if refusal.Code == webhook.CodeRateLimited || refusal.Code == webhook.CodeWorkflowInactive {
		p.status, p.retryable = temporaryRefusalStatus, true
		if refusal.RetryAfter == 0 {
			refusal.RetryAfter = retryAfterInactive
		}
	}
	return p, refusal
}

// sealSecret encrypts a secret that a provider has sent, for the executors to decrypt.
func (h *handler) sealSecret(t admission.Trigger, secret string) ([]byte, error) {
	sealed, err := h.sealer(t.Workflow.ID, t.NodeID, secret)
	if err != nil {
		return nil,
			fmt.Errorf("keep the secret that the provider of trigger node %q sent: %w",
				t.NodeID, err)
	}
	return sealed, nil
}
