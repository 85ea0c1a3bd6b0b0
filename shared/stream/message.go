package stream

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
	"github.com/hookstart/hookstart/shared/execution"
)

// Names of the headers that start messages, rejections and reports on executions have in addition
// to Content-Type. If the stream must recognize repeats of a message, the message also has a
// Nats-Msg-Id.
const (
	HeaderExecutionID = "Hookstart-Execution-Id"
	HeaderWorkflowID  = "Hookstart-Workflow-Id"
	HeaderNodeID      = "Hookstart-Node-Id"
	HeaderTrace       = "traceparent"
)

// HeaderActor is the header that names the operator who requested a start message, for the audit
// log.
const HeaderActor = "Hookstart-Actor"

// contentType is the Content-Type of every message: protobuf.
const contentType = "application/protobuf"

// StartMessage returns the message that starts an execution. If s has a delivery ID, the message's
// Nats-Msg-Id is the execution ID, which is a hash of the delivery ID.
func StartMessage(s execution.Start) (*nats.Msg, error) { return Layout{}.StartMessage(s) }

// StartMessage is like the StartMessage function, but the message is for the stream that l
// identifies.
func (l Layout) StartMessage(s execution.Start) (*nats.Msg, error) {
	return new(StartEncoder).MessageForLayout(l, s)
}

// StartEncoder encodes start messages, one at a time, into memory that it reuses. The zero value is
// ready to use.
type StartEncoder struct {
	msg    nats.Msg
	values *headerValues // the values of msg.Header
}

// Message returns the same message as the StartMessage function, but the message uses memory that
// belongs to e. It is therefore valid only until e encodes the next one.
func (e *StartEncoder) Message(s execution.Start) (*nats.Msg, error) {
	return e.MessageForLayout(Layout{}, s)
}

// MessageForLayout is like Message, but the message is for the stream that l identifies.
func (e *StartEncoder) MessageForLayout(l Layout, s execution.Start) (*nats.Msg, error) {
	data, err := encodeStart(e.msg.Data, &s)
	if err != nil {
		return nil, fmt.Errorf("encode the start of %q: %w", s.ID, err)
	}
	if e.values == nil {
		e.msg.Header, e.values = newHeaders()
	}
	*e.values = headerValues{s.ID, s.WorkflowID, s.NodeID, contentType, s.Trace}
	e.msg.Subject, e.msg.Reply, e.msg.Data = l.SubjectOf(&s), "", data
	if s.DeliveryID != "" {
		e.msg.Header[jetstream.MsgIDHeader] = e.msg.Header[HeaderExecutionID]
	} else {
		delete(e.msg.Header, jetstream.MsgIDHeader)
	}
	return &e.msg, nil
}

// ReleaseLargeBuffer frees the memory of the last message's data if its capacity exceeds maxBytes,
// so that one long message does not keep memory in use. The last message is then no longer valid.
func (e *StartEncoder) ReleaseLargeBuffer(maxBytes int) {
	if cap(e.msg.Data) > maxBytes {
		e.msg.Data = nil
	}
}

// RejectedMessage returns the message that records a rejected request in EXECUTIONS. Its
// Nats-Msg-Id is the ID of the rejection.
func RejectedMessage(r execution.Rejection) (*nats.Msg, error) {
	return Layout{}.RejectedMessage(r)
}

// RejectedMessage is like the RejectedMessage function, but the message is for the stream that l
// identifies.
func (l Layout) RejectedMessage(r execution.Rejection) (*nats.Msg, error) {
	data, err := proto.Marshal(&hookstartv1.ExecutionRejected{
		ExecutionId: r.ID,
		WorkflowId:  r.WorkflowID,
		NodeId:      r.NodeID,
		AccountId:   r.AccountID,
		Queue:       r.Queue,
		DeliveryId:  r.DeliveryID,
		AcceptedAt:  timestamppb.New(r.At),
		ContentType: r.Payload.ContentType,
		BodyBytes:   r.DeclaredSize,
		Headers:     valuesToWire(r.Headers),
		Query:       valuesToWire(r.Query),
		Code:        r.Code,
		TokenId:     r.TokenID,
		BodyKind:    hookstartv1.BodyKind(r.Payload.Kind),
		Body:        r.Payload.Body,
		Sender:      r.Sender,
		Verified:    r.Verified,

		DeliveryDerived: r.DeliveryIDDerived,
	})
	if err != nil {
		return nil, fmt.Errorf("encode a rejection: %w", err)
	}
	msg := &nats.Msg{
		Subject: l.RejectedSubject(r.Queue, r.WorkflowID, r.NodeID),
		Header:  headersOf(r.ID, r.WorkflowID, r.NodeID, r.Trace),
		Data:    data,
	}
	// r.ID is a hash of the delivery ID or, without a delivery ID, random. So only repeats of a
	// delivery have the same Nats-Msg-Id.
	msg.Header[jetstream.MsgIDHeader] = []string{r.ID}
	return msg, nil
}

// ProgressMessage returns the message of a runner's report. Its headers hold the node and the trace
// of the execution's start message.
func ProgressMessage(
	queue, workflowID, nodeID, trace string, p execution.Progress,
) (*nats.Msg, error) {
	return Layout{}.ProgressMessage(queue, workflowID, nodeID, trace, p)
}

// ProgressMessage is like the ProgressMessage function, but for an execution whose start message is
// stored in the stream that l identifies.
func (l Layout) ProgressMessage(
	queue, workflowID, nodeID, trace string, p execution.Progress,
) (*nats.Msg, error) {
	data, err := encodeProgress(&p)
	if err != nil {
		return nil, fmt.Errorf("encode progress of %q: %w", p.ID, err)
	}
	return &nats.Msg{
		Subject: l.ProgressSubject(queue, workflowID, p.ID),
		Header:  headersOf(p.ID, workflowID, nodeID, trace),
		Data:    data,
	}, nil
}

// headerValues holds the values of the headers that every message has: execution, workflow, node,
// Content-Type and trace.
type headerValues [5]string

// newHeaders returns a nats.Header whose values are in one array. This needs one allocation instead
// of the five that Header.Set needs.
func newHeaders() (nats.Header, *headerValues) {
	values := new(headerValues)
	return nats.Header{
		HeaderExecutionID: values[0:1:1],
		HeaderWorkflowID:  values[1:2:2],
		HeaderNodeID:      values[2:3:3],
		"Content-Type":    values[3:4:4],
		HeaderTrace:       values[4:5:5],
	}, values
}

func headersOf(executionID, workflowID, nodeID, trace string) nats.Header {
	header, values := newHeaders()
	*values = headerValues{executionID, workflowID, nodeID, contentType, trace}
	return header
}

// DecodedMessage is a decoded message. Exactly one field is set.
type DecodedMessage struct {
	Start     *execution.Start
	Rejection *execution.Rejection
	Progress  *execution.Progress
}

// ErrUnreadable means that a message could not be decoded as the kind of message that its subject
// requires.
var ErrUnreadable = errors.New("unreadable message")

// Decode decodes a start message, a rejection or a runner's report. Its errors wrap ErrUnreadable.
func Decode(subject string, header nats.Header, data []byte) (DecodedMessage, error) {
	var (
		event DecodedMessage
		err   error
	)
	trace := ""
	if values := header[HeaderTrace]; len(values) > 0 {
		trace = values[0]
	}
	switch {
	case IsStartSubject(subject):
		event.Start, err = decodeStart(data, trace)
	case isRejectedSubject(subject):
		event.Rejection, err = decodeRejection(data, trace)
	case IsProgressSubject(subject):
		event.Progress, err = decodeProgress(subject, data)
	default:
		err = errors.New("no such subject")
	}
	if err != nil {
		return DecodedMessage{}, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return event, nil
}

func decodeStart(data []byte, trace string) (*execution.Start, error) {
	var m hookstartv1.ExecutionStart
	if err := proto.Unmarshal(data, &m); err != nil {
		return nil, err
	}
	if err := checkIDs(m.GetExecutionId(), m.GetWorkflowId(), m.GetNodeId(), m.GetAccountId(),
		m.GetQueue()); err != nil {
		return nil, err
	}
	kind, err := bodyKindFromWire(int32(m.GetBodyKind()))
	if err != nil {
		return nil, err
	}
	return &execution.Start{
		ID:         m.GetExecutionId(),
		WorkflowID: m.GetWorkflowId(),
		NodeID:     m.GetNodeId(),
		AccountID:  m.GetAccountId(),
		Queue:      m.GetQueue(),
		Source:     sourceFromWire(m.GetSource()),
		DeliveryID: m.GetDeliveryId(),
		RerunOf:    m.GetRerunOf(),
		ReplayOf:   m.GetReplayOf(),
		AcceptedAt: timeFromWire(m.GetAcceptedAt()),
		Payload: execution.Payload{
			ContentType: m.GetContentType(),
			Kind:        kind,
			Body:        m.GetBody(),
		},
		Headers: valuesFromWire(m.GetHeaders()),
		Query:   valuesFromWire(m.GetQuery()),
		TokenID: m.GetTokenId(),
		Trace:   trace,

		Sender:            m.GetSender(),
		Verified:          m.GetVerified(),
		DeliveryIDDerived: m.GetDeliveryDerived(),
		OrderKey:          m.GetOrderKey(),
	}, nil
}

func bodyKindFromWire(number int32) (execution.BodyKind, error) {
	if k := hookstartv1.BodyKind(number); k < hookstartv1.BodyKind_BODY_KIND_JSON ||
		k > hookstartv1.BodyKind_BODY_KIND_BINARY {
		return 0, fmt.Errorf("body kind %d is not known", number)
	}
	return execution.BodyKind(number), nil //nolint:gosec // within the bounds
}

func decodeRejection(data []byte, trace string) (*execution.Rejection, error) {
	var m hookstartv1.ExecutionRejected
	if err := proto.Unmarshal(data, &m); err != nil {
		return nil, err
	}
	if err := checkIDs(m.GetExecutionId(), m.GetWorkflowId(), m.GetNodeId(), m.GetAccountId(),
		m.GetQueue()); err != nil {
		return nil, err
	}
	// A kind that only a later version defines counts as BodyNone. Returning an error instead would
	// keep operators from looking up the rejection.
	kind := execution.BodyNone
	if k := m.GetBodyKind(); k >= hookstartv1.BodyKind_BODY_KIND_JSON &&
		k <= hookstartv1.BodyKind_BODY_KIND_BINARY {
		kind = execution.BodyKind(k)
	}
	return &execution.Rejection{
		ID:         m.GetExecutionId(),
		WorkflowID: m.GetWorkflowId(),
		NodeID:     m.GetNodeId(),
		AccountID:  m.GetAccountId(),
		Queue:      m.GetQueue(),
		DeliveryID: m.GetDeliveryId(),
		At:         timeFromWire(m.GetAcceptedAt()),
		Payload: execution.Payload{
			ContentType: m.GetContentType(),
			Kind:        kind,
			Body:        m.GetBody(),
		},
		DeclaredSize: m.GetBodyBytes(),
		Headers:      valuesFromWire(m.GetHeaders()),
		Query:        valuesFromWire(m.GetQuery()),
		Code:         m.GetCode(),
		TokenID:      m.GetTokenId(),
		Trace:        trace,

		Sender: m.GetSender(), Verified: m.GetVerified(), DeliveryIDDerived: m.GetDeliveryDerived(),
	}, nil
}

func decodeProgress(subject string, data []byte) (*execution.Progress, error) {
	var m hookstartv1.ExecutionProgress
	if err := proto.Unmarshal(data, &m); err != nil {
		return nil, err
	}
	if !isUUID(m.GetExecutionId()) {
		return nil, fmt.Errorf("%.80q is not an execution ID", m.GetExecutionId())
	}
	queue, workflowID, id, ok := ParseProgressSubject(subject)
	if !ok || id != m.GetExecutionId() {
		return nil, fmt.Errorf("it is about execution %s, its subject is not", m.GetExecutionId())
	}
	status, err := stateFromWire(m.GetState())
	if err != nil {
		return nil, err
	}
	if output := m.GetOutput(); len(output) > 0 && !execution.ValidJSON(output) {
		return nil, errors.New("the output is not one JSON text")
	}
	// Ignore invalid names of groups, because the rest of the report is still usable.
	group := m.GetGroup()
	if !execution.ValidName(group) {
		group = ""
	}
	endedGroups := slices.DeleteFunc(m.GetEndedGroups(), func(name string) bool {
		return !execution.ValidName(name)
	})
	return &execution.Progress{
		ID:         m.GetExecutionId(),
		Queue:      queue,
		WorkflowID: workflowID,
		Status:     status,
		At:         timeFromWire(m.GetAt()),
		StartedAt:  timeFromWire(m.GetStartedAt()),
		Attempt:    int(m.GetAttempt()),
		Error:      m.GetError(),
		Output:     m.GetOutput(),
		Group:      group,

		EndedGroups: endedGroups,
	}, nil
}

func checkIDs(executionID string, names ...string) error {
	if !isUUID(executionID) {
		return fmt.Errorf("%.80q is not an execution ID", executionID)
	}
	for _, name := range names {
		if !execution.ValidName(name) {
			return fmt.Errorf("%.80q is not a valid name", name)
		}
	}
	return nil
}

func isUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if c != '-' {
				return false
			}
		} else if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func sourceToWire(s execution.Source) hookstartv1.ExecutionSource {
	switch s {
	case execution.SourceRerun:
		return hookstartv1.ExecutionSource_EXECUTION_SOURCE_RERUN
	case execution.SourceEvent:
		return hookstartv1.ExecutionSource_EXECUTION_SOURCE_EVENT
	case execution.SourceWebhook:
	}
	return hookstartv1.ExecutionSource_EXECUTION_SOURCE_WEBHOOK
}

// sourceFromWire decodes the source of a start message. An unknown source is treated as a webhook
// request.
func sourceFromWire(s hookstartv1.ExecutionSource) execution.Source {
	switch s { //nolint:exhaustive // the others are requests
	case hookstartv1.ExecutionSource_EXECUTION_SOURCE_RERUN:
		return execution.SourceRerun
	case hookstartv1.ExecutionSource_EXECUTION_SOURCE_EVENT:
		return execution.SourceEvent
	}
	return execution.SourceWebhook
}

var statusByWireState = map[hookstartv1.ExecutionState]execution.Status{
	hookstartv1.ExecutionState_EXECUTION_STATE_RUNNING:   execution.Running,
	hookstartv1.ExecutionState_EXECUTION_STATE_SUCCEEDED: execution.Succeeded,
	hookstartv1.ExecutionState_EXECUTION_STATE_FAILED:    execution.Failed,
	hookstartv1.ExecutionState_EXECUTION_STATE_CANCELED:  execution.Canceled,
}

func stateFromWire(s hookstartv1.ExecutionState) (execution.Status, error) {
	status, ok := statusByWireState[s]
	if !ok {
		return "", fmt.Errorf("state %d is not known", s)
	}
	return status, nil
}

func stateToWire(status execution.Status) hookstartv1.ExecutionState {
	switch status {
	case execution.Running:
		return hookstartv1.ExecutionState_EXECUTION_STATE_RUNNING
	case execution.Succeeded:
		return hookstartv1.ExecutionState_EXECUTION_STATE_SUCCEEDED
	case execution.Failed:
		return hookstartv1.ExecutionState_EXECUTION_STATE_FAILED
	case execution.Canceled:
		return hookstartv1.ExecutionState_EXECUTION_STATE_CANCELED
	case execution.Queued, execution.Rejected: // no runner reports these
	}
	return hookstartv1.ExecutionState_EXECUTION_STATE_UNSPECIFIED
}

func valuesToWire(values execution.Values) []*hookstartv1.NamedValues {
	list := make([]*hookstartv1.NamedValues, 0, len(values))
	for name, v := range values {
		list = append(list, &hookstartv1.NamedValues{Name: name, Values: v})
	}
	return list
}

func valuesFromWire(list []*hookstartv1.NamedValues) execution.Values {
	values := make(execution.Values, len(list))
	for _, v := range list {
		values[v.GetName()] = append(values[v.GetName()], v.GetValues()...)
	}
	return values
}

// timeFromWire returns the time, or the zero time if t is nil or invalid.
func timeFromWire(t *timestamppb.Timestamp) time.Time {
	if t == nil || !t.IsValid() {
		return time.Time{}
	}
	return t.AsTime()
}
