package ingress

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hookstart/hookstart/ingress/internal/admission"
	"github.com/hookstart/hookstart/ingress/internal/publish"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/stream"
	"github.com/hookstart/hookstart/shared/webhook"
)

// retryAfterStreamMove is the Retry-After of a request that is refused because its queue or
// workflow is closed for a moment while it moves to another stream.
const retryAfterStreamMove = time.Second

// startExecution starts an execution. If responses of the node are configured to wait, it also
// waits for the execution to finish.
func (h *handler) startExecution(d *delivery) outcome {
	id := d.trigger.ExecutionID(d.id)
	if out := h.chooseStream(d); out != nil {
		return *out
	}
	if a := d.trigger.Node.SyncResponse; a != nil {
		return h.startAndWait(d, a, id)
	}
	return h.storeStart(d, id)
}

// chooseStream chooses the stream for the start message or the rejection, and stores the choice in
// d. On success, it returns nil, and the caller must release d.permit exactly once. If the message
// cannot be stored now, it returns a refusal.
func (h *handler) chooseStream(d *delivery) *outcome {
	for {
		d.permit = d.trigger.Workflow.AcquirePermit()
		isOpen := !d.permit.Superseded && d.permit.Target != registry.StoreTargetClosed
		now := time.Now()
		// The lease may have expired while the body was read. This copy of the registry may then
		// have missed that the workflow has moved.
		if isOpen && h.lease.IsValid(now) {
			d.layout = stream.Layout{Own: d.permit.Target == registry.StoreTargetOwn}
			d.choice = streamChoice{h, d.trigger.Workflow, d.permit.Target, now}
			return nil
		}
		d.permit.Release()
		switch {
		case isOpen && h.lease.AwaitValid(time.Now()):
			continue
		case isOpen:
			return refusalOutcome(webhook.CodeUnavailable, retryAfterUnavailable)
		case !d.permit.Superseded:
			return refusalOutcome(webhook.CodeUnavailable, retryAfterStreamMove)
		}
		w := h.admission.Workflow(d.trigger.Workflow.ID)
		// Refuse the request if the workflow was deleted, if its new record is not in the snapshot
		// yet, or if it now belongs to another account, for which the request was not meant.
		if w == nil || w == d.trigger.Workflow || w.AccountID != d.trigger.Workflow.AccountID {
			return refusalOutcome(webhook.CodeUnavailable, retryAfterStreamMove)
		}
		d.trigger.Workflow = w
	}
}

// streamChoice records which stream chooseStream has chosen for a message, for which workflow, and
// when.
type streamChoice struct {
	h        *handler
	workflow *registry.CompiledWorkflow
	target   registry.StoreTarget // the chosen stream: the shared one or the queue's own
	madeAt   time.Time            // when chooseStream made the choice
}

// IsCurrent reports whether the message may still be published to the chosen stream. If the lease
// has expired, IsCurrent waits briefly for its renewal.
//
// Before executors move a queue or a workflow to another stream, they wait until this process has
// released its permits. They stop waiting only when they presume the process dead, and by then its
// lease has expired. Until the lease expires, no move can therefore end before the caller releases
// its permit. The choice is then still current, even if the queue or the workflow has already been
// closed for a move. Once the lease has expired, a move may have ended. The choice is then current
// only if the lease is renewed and chooseStream would make the same choice from the renewed copy of
// the registry.
//
// One case remains. If two servers of a cluster reach the leader but not each other, an executor at
// one server may presume a process at the other one dead although its lease is renewed. If the
// process then sends a message again after the end of the move, the old stream stores the message.
// The new stream does not know its delivery ID, so a later repeat of the delivery runs a second
// time.
func (c *streamChoice) IsCurrent() bool {
	if c.h.lease.IsValidSince(c.madeAt, time.Now()) {
		return true
	}
	if !c.h.lease.AwaitValid(time.Now()) {
		return false
	}
	w := c.h.admission.Workflow(c.workflow.ID)
	if w == nil || w.AccountID != c.workflow.AccountID || w.Queue != c.workflow.Queue {
		return false
	}
	permit := w.AcquirePermit()
	defer permit.Release()
	return !permit.Superseded && permit.Target == c.target && c.h.lease.IsValid(time.Now())
}

// storeStart publishes the message that starts an execution with the given ID, and releases
// d.permit.
func (h *handler) storeStart(d *delivery, id string) outcome {
	defer d.permit.Release()
	orderKey, spanSubject := "", d.layout.StartSubject
	if key := d.trigger.Node.OrderKey; key != nil {
		if orderKey = d.redactor.RedactText(key.Key(&d.request)); orderKey != "" {
			spanSubject = func(queue, workflowID, nodeID string) string {
				return d.layout.OrderedSubject(queue, execution.LaneOf(workflowID, orderKey),
					workflowID, nodeID)
			}
		}
	}
	start := execution.Start{
		ID:         id,
		WorkflowID: d.trigger.Workflow.ID,
		NodeID:     d.trigger.NodeID,
		AccountID:  d.trigger.Workflow.AccountID,
		Queue:      d.trigger.Workflow.Queue,
		Source:     execution.SourceWebhook,
		DeliveryID: d.redactor.RedactHeaderValue(d.id.ID),
		AcceptedAt: d.event.start.UTC().Truncate(time.Microsecond),
		Payload:    d.payload,
		Trace:      d.spans.startPublishSpan(d.r, spanSubject, d.trigger, id),
		Headers:    d.redactor.AddHeadersTo(d.headers, d.senderSecretHeaders()),
		Query:      d.redactor.Query(),
		TokenID:    d.trigger.TokenID,
		Sender:     d.senderPreset(),
		Verified:   d.verified,

		DeliveryIDDerived: d.id.Derived || d.id.Signed,
		OrderKey:          orderKey,
	}
	start.Payload.ContentType = d.redactor.RedactText(start.Payload.ContentType)
	msg, err := d.encoder.MessageForLayout(d.layout, start)
	ack, refusal := h.publish(d, id, msg, err)
	if refusal != nil {
		return outcome{refusal: refusal}
	}
	if ack.Duplicate {
		h.duplicates.Count(id)
	}
	out := outcome{executionID: id, duplicate: ack.Duplicate}
	if s := d.sender(); s != nil {
		out.response = s.Response(&d.request)
		h.countSenderDelivery(d)
	}
	return out
}

// storeRejection publishes the record of a refused request, and returns the refusal for the
// response: the refusal why or, if the record could not be stored, a refusal for that failure.
func (h *handler) storeRejection(d *delivery, why *admission.Refusal) *admission.Refusal {
	if out := h.chooseStream(d); out != nil {
		return out.refusal
	}
	defer d.permit.Release()
	rejection := execution.Rejection{
		ID:           why.ExecutionID,
		WorkflowID:   d.trigger.Workflow.ID,
		NodeID:       d.trigger.NodeID,
		AccountID:    d.trigger.Workflow.AccountID,
		Queue:        d.trigger.Workflow.Queue,
		At:           d.event.start.UTC().Truncate(time.Microsecond),
		Payload:      d.payload,
		DeclaredSize: max(d.r.ContentLength, int64(len(d.payload.Body)), 0),
		Headers:      d.redactor.AddHeadersTo(d.headers, d.senderSecretHeaders()),
		Query:        d.redactor.Query(),
		Code:         string(why.Code),
		TokenID:      d.trigger.TokenID,
		Trace: d.spans.startPublishSpan(d.r, d.layout.RejectedSubject, d.trigger,
			why.ExecutionID),
		Sender:   d.senderPreset(),
		Verified: d.verified,
	}
	rejection.Payload.ContentType = d.redactor.RedactHeaderValue(d.r.Header.Get("Content-Type"))
	if len(d.id.ID) <= execution.MaxDeliveryIDBytes {
		rejection.DeliveryID, rejection.DeliveryIDDerived = d.redactor.RedactHeaderValue(d.id.ID),
			d.id.Derived || d.id.Signed
	}
	d.event.executionID = rejection.ID
	msg, err := d.layout.RejectedMessage(rejection)
	if _, refusal := h.publish(d, rejection.ID, msg, err); refusal != nil {
		if refusal.OutcomeUnknown {
			refusal.Detail = "The workflow is inactive, so the request starts nothing. It may " +
				"have been recorded as rejected, with this executionId."
		}
		return refusal
	}
	return why
}

// retryAfterUnavailable is the Retry-After while the stream is unavailable. It is about as long as
// a server takes to restart, or a cluster to elect a leader.
const retryAfterUnavailable = 2 * time.Second

// publish publishes the message of a delivery, and turns a failure into a refusal. id is the
// message's execution ID. If encodeErr, the error from encoding the message, is not nil, publish
// publishes nothing and refuses the delivery.
func (h *handler) publish(
	d *delivery, id string, msg *nats.Msg, encodeErr error,
) (publish.Ack, *admission.Refusal) {
	e := &d.event
	if encodeErr != nil {
		e.err = encodeErr
		return publish.Ack{}, &admission.Refusal{Code: webhook.CodeInternal}
	}
	began := time.Now()
	ack, err := h.publishWithinShare(d.trigger.Workflow.AccountID, msg, &d.choice)
	e.publishDuration = time.Since(began)
	d.spans.endPublishSpan(ack.Duplicate, err)
	if err == nil {
		return ack, nil
	}
	e.err = err
	switch {
	case errors.Is(err, publish.ErrStorageFull):
		return ack, &admission.Refusal{Code: webhook.CodeStorageFull, RetryAfter: 30 * time.Second}
	case errors.Is(err, publish.ErrTooLong): // headers and parameters are added to the body
		return ack, &admission.Refusal{Code: webhook.CodeBodyTooLarge}
	case errors.Is(err, publish.ErrOverloaded):
		return ack, &admission.Refusal{Code: webhook.CodeOverloaded, RetryAfter: time.Second}
	case errors.Is(err, publish.ErrOutcomeUnknown):
		return ack, &admission.Refusal{
			Code:           webhook.CodeUnavailable,
			RetryAfter:     retryAfterUnavailable,
			ExecutionID:    id,
			OutcomeUnknown: true,
			Detail: "The request may have been stored; its execution then has this executionId. " +
				"It has no delivery ID, so sending it again may start a second execution.",
		}
	default:
		return ack, &admission.Refusal{
			Code:       webhook.CodeUnavailable,
			RetryAfter: retryAfterUnavailable,
		}
	}
}

func inOwnStream(msg *nats.Msg) bool {
	layout, _ := stream.LayoutOf(msg.Subject)
	return layout.Own
}

// errOverStorageShare means that the stream is nearly full and that the account holds its full
// share of it.
var errOverStorageShare = fmt.Errorf(
	"%w for this account: it holds its share of a stream that is nearly full",
	publish.ErrStorageFull,
)

// publishWithinShare publishes a message unless the account has used up its share of a nearly full
// stream. In that case, it stores nothing: it returns the confirmation of the stored message if msg
// is a repeat of it, and an error otherwise. Only the space of the shared stream is divided among
// accounts. An operator has assigned the space of a queue's own stream to the queue.
func (h *handler) publishWithinShare(
	accountID string, msg *nats.Msg, choice publish.StreamChoice,
) (publish.Ack, error) {
	var size int64
	if h.space.IsLimited() && !inOwnStream(msg) {
		size = stream.StoredSize(msg.Subject, msg.Header, len(msg.Data))
		if !h.space.Reserve(accountID, size) {
			ack, err := h.publisher.LookupDuplicate(msg)
			if errors.Is(err, publish.ErrStorageFull) {
				err = errOverStorageShare
			}
			return ack, err
		}
	}
	ack, err := h.publisher.Publish(msg, choice)
	if size > 0 && (err != nil || ack.Duplicate) {
		h.space.Release(accountID, size)
	}
	return ack, err
}

// deliveryPublisher stores the messages of deliveries. It is implemented by *publish.StreamRouter.
type deliveryPublisher interface {
	Publish(msg *nats.Msg, choice publish.StreamChoice) (publish.Ack, error)
	LookupDuplicate(msg *nats.Msg) (publish.Ack, error)
}

// withInFlightCount returns a deliveryPublisher that publishes through p and keeps n equal to the
// number of messages that are being published. If n is nil, it returns p itself.
func withInFlightCount(p deliveryPublisher, n *atomic.Int64) deliveryPublisher {
	if n == nil {
		return p
	}
	return countingPublisher{p, n}
}

type countingPublisher struct {
	deliveryPublisher

	inFlight *atomic.Int64
}

func (c countingPublisher) Publish(
	msg *nats.Msg, choice publish.StreamChoice,
) (publish.Ack, error) {
	c.inFlight.Add(1)
	defer c.inFlight.Add(-1)
	return c.deliveryPublisher.Publish(msg, choice)
}

// withRoomCheck returns a deliveryPublisher that calls check before it publishes a message through
// p. If check returns an error, the message is not stored, and the error wraps
// publish.ErrStorageFull. A repeated delivery is still confirmed. If check is nil, the result is p
// itself.
func withRoomCheck(p deliveryPublisher, check func() error) deliveryPublisher {
	if check == nil {
		return p
	}
	return roomCheckingPublisher{p, check}
}

type roomCheckingPublisher struct {
	deliveryPublisher

	check func() error
}

func (k roomCheckingPublisher) Publish(
	msg *nats.Msg, choice publish.StreamChoice,
) (publish.Ack, error) {
	full := k.check()
	if full == nil {
		return k.deliveryPublisher.Publish(msg, choice)
	}
	ack, err := k.LookupDuplicate(msg)
	if errors.Is(err, publish.ErrStorageFull) {
		err = fmt.Errorf("%w: %w", err, full)
	}
	return ack, err
}
