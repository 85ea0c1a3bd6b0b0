package edit

import (
	"errors"
	"fmt"
)

// maybeStaleError is an error that refuses a change because of the contents of the index, which
// may be stale: see storeWithRetry.
type maybeStaleError interface {
	error
	mayBeStale()
}

func mayBeStale(err error) bool {
	_, ok := errors.AsType[maybeStaleError](err)
	return ok
}

// newMaybeStaleError returns a sentinel error for a change that is refused because of the contents
// of the index, which may be stale (see maybeStaleError).
func newMaybeStaleError(text string) error { return &maybeStaleSentinelError{text} }

type maybeStaleSentinelError struct{ text string }

func (r *maybeStaleSentinelError) Error() string { return r.text }

func (*maybeStaleSentinelError) mayBeStale() {}

// ErrNotFound means that the named item does not exist: an account, workflow, trigger node, sender,
// secret, key or event subscription. The error that wraps ErrNotFound is a *NotFoundError, which
// names the item.
var ErrNotFound = newMaybeStaleError("not found")

// NotFoundError is the error for an item that does not exist. errors.Is(err, ErrNotFound) returns
// true for it.
type NotFoundError struct {
	Item string // a human-readable description, for example: workflow "orders"
}

func (e *NotFoundError) Error() string { return e.Item + ": " + ErrNotFound.Error() }

// Unwrap returns ErrNotFound.
func (e *NotFoundError) Unwrap() error { return ErrNotFound }

func workflowNotFound(id string) error { return &NotFoundError{fmt.Sprintf("workflow %q", id)} }

// ErrActiveWorkflowLimit means that the account's plan does not allow another active workflow.
var ErrActiveWorkflowLimit = newMaybeStaleError(
	"the plan's number of active webhook workflows is reached",
)

// ErrWebhooksNotInPlan means that the account's plan does not allow webhook triggers.
var ErrWebhooksNotInPlan = newMaybeStaleError("the plan has no webhook triggers")

// ErrAccountNotEmpty means that an account was not deleted because it has workflows or keys.
var ErrAccountNotEmpty = newMaybeStaleError("it has workflows or keys")

// ErrPreconditionFailed means that a workflow, account or queue is not in the state that the caller
// expects, for example because another call has changed it.
var ErrPreconditionFailed = newMaybeStaleError("it was changed meanwhile")

// ErrTooManyTokens means that a node already has the maximum number of valid tokens.
var ErrTooManyTokens = newMaybeStaleError("too many old tokens still work")

// ErrTooManySecrets means that a change was refused because the sender would have more valid
// secrets than allowed.
var ErrTooManySecrets = newMaybeStaleError("too many secrets still work")

// ErrIngressTooOld means that a live ingress is too old to enforce a setting.
var ErrIngressTooOld = errors.New("an ingress that runs is too old for it")

// ErrLastSecret means that a secret was not removed because it is the sender's last valid one.
var ErrLastSecret = newMaybeStaleError("it is the sender's last secret")

// InvalidFieldError reports an invalid field in an operator's request.
type InvalidFieldError struct {
	Field   string // the field's path in the operators' API, such as triggers[0].nodeId
	Problem string // what is wrong, human-readable
}

func (e *InvalidFieldError) Error() string { return e.Field + ": " + e.Problem }

func (*InvalidFieldError) mayBeStale() {}
