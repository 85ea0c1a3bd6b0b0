package operate

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/queuestreams"
	"github.com/hookstart/hookstart/executor/internal/starts"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/registry/consistency"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/registry/seal"
	"github.com/hookstart/hookstart/shared/stream"
)

// Error describes why a call failed. All fields except Cause may be shown to operators.
type Error struct {
	Code string // one of the codes in package api; programs check it
	// Detail describes what happened and what to do about it. If it is empty,
	// the general text for Code is shown.
	Detail string
	Fields []api.FieldError // the invalid fields, if Code is api.CodeInvalid
	// MustNotRepeat means that the call must not be repeated before its effect has been checked,
	// even if Code stands for a temporary error.
	MustNotRepeat bool
	// Cause is for the log only, because it may contain server names or parts of queries.
	Cause error
}

// ErrorCode returns Code. It lets api.IsCode check errors of this type.
func (e *Error) ErrorCode() string { return e.Code }

func (e *Error) Error() string {
	if e.Cause != nil {
		return e.Cause.Error()
	}
	return e.Code + ": " + e.Detail
}

// Unwrap returns Cause, which may be nil.
func (e *Error) Unwrap() error { return e.Cause }

// NewChangedSinceError returns the error for a change that is refused because somebody else has
// changed the same setting since the caller read it. Its cause is edit.ErrPreconditionFailed. The
// cause matters if the registry's editor has checked the change against an outdated copy of the
// registry: the editor then tries the change again with a current copy.
func NewChangedSinceError(detail string) error {
	return &Error{Code: api.CodeChangedSince, Detail: detail, Cause: edit.ErrPreconditionFailed}
}

func notFoundError(kind, id, more string) error {
	return &Error{
		Code:   api.CodeNotFound,
		Detail: "There is no " + kind + " " + strconv.Quote(id) + "." + more,
	}
}

// errUnavailable means that the database or NATS does not respond.
var errUnavailable = errors.New("a dependency does not answer")

// errNoSamplePayload means that a trigger node has no sample payload.
var errNoSamplePayload = errors.New("no sample payload is configured")

// toError converts any error of the registry, the database or NATS to an Error. It is the only
// function that does so.
func (s *Service) toError(ctx context.Context, err error) *Error {
	failed := func(code, detail string) *Error {
		return &Error{Code: code, Detail: detail, Cause: err}
	}
	if known, ok := errors.AsType[*Error](err); ok {
		return known
	}
	if fields := invalidFields(err); len(fields) > 0 {
		return &Error{Code: api.CodeInvalid, Fields: fields, Cause: err}
	}
	if missing, ok := errors.AsType[*edit.NotFoundError](err); ok {
		return failed(api.CodeNotFound, "There is no "+missing.Item+".")
	}
	if unconfirmed, ok := errors.AsType[*consistency.UnconfirmedError](err); ok {
		return failed(api.CodeNotConfirmed, fmt.Sprintf(
			"The change is stored, but these processes have not confirmed it yet: %s. Repeat the "+
				"change: that is safe, and waits again.",
			strings.Join(unconfirmed.LaggingProcesses, ", ")))
	}
	if _, ok := errors.AsType[*edit.OutcomeUnknownError](err); ok {
		return failed(api.CodeNotConfirmed,
			"NATS has not confirmed the change in time: it may be stored, or not. Repeat the "+
				"change: that is safe.")
	}
	switch {
	case errors.Is(err, store.ErrTooBroad):
		return &Error{
			Code: api.CodeInvalid, Cause: err,
			Fields: []api.FieldError{{
				Field: "deliveryId",
				Problem: "there are too many executions to look through: name the workflowId, or " +
					"since and until that are nearer to each other",
			}},
		}
	case errors.Is(err, edit.ErrActiveWorkflowLimit):
		return failed(api.CodePlanLimitExceeded, "")
	case errors.Is(err, edit.ErrWebhooksNotInPlan):
		return failed(api.CodeWebhooksNotInPlan, "")
	case errors.Is(err, errNoSamplePayload):
		return failed(api.CodeSamplePayloadMissing, "")
	case errors.Is(err, edit.ErrAccountNotEmpty):
		return failed(api.CodeAccountNotEmpty, "")
	case errors.Is(err, edit.ErrPreconditionFailed):
		return failed(api.CodeChangedSince, "")
	case errors.Is(err, edit.ErrQueueMoving):
		return failed(api.CodeQueueMoves, "")
	case errors.Is(err, edit.ErrOrderedExecutionsWaiting):
		return failed(api.CodeQueueMoves, "Executions with an order key still wait in the stream "+
			"to which the queue would move, from before it left that stream. Move the queue when "+
			"they have been run, or canceled.")
	case errors.Is(err, nats.ErrMaxPayload):
		return failed(api.CodeBodyTooLarge, "What would be stored is longer than the "+
			"max_payload of the NATS server. Make it shorter, or raise max_payload.")
	case isStreamFull(err):
		return failed(api.CodeStreamFull, streamFullMessage(err))
	case errors.Is(err, edit.ErrIngressTooOld):
		return failed(api.CodeIngressTooOld, "")
	case errors.Is(err, edit.ErrTooManyTokens):
		return failed(api.CodeTooManyTokens, "")
	case errors.Is(err, edit.ErrTooManySecrets):
		return failed(api.CodeTooManySecrets, "")
	case errors.Is(err, edit.ErrLastSecret):
		return failed(api.CodeLastSecret, "")
	case errors.Is(err, seal.ErrNoKey):
		return failed(api.CodeSecretsKeyMissing, missingEncryptionKeyMessage(err))
	case errors.Is(err, errUnavailable) || errors.Is(err, starts.ErrQueueMoving) ||
		errors.Is(err, consistency.ErrNotCurrent) || isNATSUnavailable(err) ||
		store.IsUnavailable(err) ||
		!s.config.JetStream.Conn().IsConnected():
		return failed(api.CodeUnavailable, "")
	case ctx.Err() != nil: // a driver's error need not mention the timeout
		return &Error{Code: api.CodeUnavailable, Cause: fmt.Errorf("%w: %w", ctx.Err(), err)}
	case s.isDatabaseUnavailable(ctx):
		return failed(api.CodeUnavailable, "")
	default:
		return failed(api.CodeInternal, "")
	}
}

// isStreamFull reports whether an error means that a stream has no space for the delivery IDs that
// a move copies into it.
func isStreamFull(err error) bool { return streamFullMessage(err) != "" }

func streamFullMessage(err error) string {
	full, ok := errors.AsType[*queuestreams.StreamFullError](err)
	if !ok {
		return ""
	}
	return "The stream " + full.Stream +
		" has no space for the delivery IDs that move to it. Give it more " +
		"space, or take the setting back."
}

// missingEncryptionKeyMessage returns a message that names the encryption key needed to open sealed
// data. If no key is configured, the error names none, and missingEncryptionKeyMessage returns "",
// so that the general text of the error code is shown.
func missingEncryptionKeyMessage(err error) string {
	var opening *seal.MissingKeyError
	if !errors.As(err, &opening) {
		return ""
	}
	return fmt.Sprintf("What is stored is sealed with the key %q, which is not in this "+
		"executor's --secrets-key-file.", opening.ID)
}

// invalidFields returns the fields of every InvalidFieldError in an error, including joined errors.
func invalidFields(err error) []api.FieldError {
	switch e := err.(type) { //nolint:errorlint // errors.As would stop at the first
	case *edit.InvalidFieldError:
		return []api.FieldError{{Field: e.Field, Problem: e.Problem}}
	case interface{ Unwrap() error }:
		return invalidFields(e.Unwrap())
	case interface{ Unwrap() []error }:
		var fields []api.FieldError
		for _, inner := range e.Unwrap() {
			fields = append(fields, invalidFields(inner)...)
		}
		return fields
	default:
		return nil
	}
}

// isNATSUnavailable reports whether an error means that NATS does not respond or cannot store
// messages now. The ingress checks its own list of errors, because it must also know whether a
// message may have been stored. For an operator's call, this makes no difference: the outcome is
// unknown, and the operator should try again.
func isNATSUnavailable(err error) bool {
	for _, known := range []error{
		context.DeadlineExceeded, context.Canceled, nats.ErrTimeout, nats.ErrNoResponders,
		nats.ErrConnectionClosed, nats.ErrConnectionReconnecting, nats.ErrConnectionDraining,
		nats.ErrDisconnected, nats.ErrReconnectBufExceeded,
		jetstream.ErrNoStreamResponse, jetstream.ErrStreamNotFound,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	refused, ok := errors.AsType[*jetstream.APIError](err)
	return ok && (refused.Code == 503 || refused.ErrorCode == stream.CodeStreamOffline ||
		refused.ErrorCode == stream.CodeStreamOfflineReason)
}

// isDatabaseUnavailable pings the database after an unknown error, and reports whether the ping
// failed. If the database responds, the error is a bug in this program, because stores mark
// temporary errors (see store.IsUnavailable).
func (s *Service) isDatabaseUnavailable(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	return s.config.Store.Ping(ctx) != nil
}
