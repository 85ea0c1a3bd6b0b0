package edit

import (
	"errors"
	"fmt"
)

// ErrNotFound means that there is no such account, workflow or trigger node. The *NotFoundError
// names it.
var ErrNotFound = errors.New("not found")

// NotFoundError names what does not exist.
type NotFoundError struct {
	What string // text for people, for example: workflow "orders"
}

func (e *NotFoundError) Error() string { return e.What + ": " + ErrNotFound.Error() }

// Is reports whether target is ErrNotFound.
func (e *NotFoundError) Is(target error) bool { return target == ErrNotFound }

func noWorkflow(id string) error { return &NotFoundError{fmt.Sprintf("workflow %q", id)} }

// ErrPlanLimit means that the account's plan does not allow another workflow to be active.
var ErrPlanLimit = errors.New("the plan's number of active webhook workflows is reached")

// ErrNotInPlan means that the account's plan has no webhook triggers.
var ErrNotInPlan = errors.New("the plan has no webhook triggers")

// ErrAccountNotEmpty means that an account was not deleted because it has workflows or keys.
var ErrAccountNotEmpty = errors.New("it has workflows or keys")

// ErrChangedSince means that a workflow or an account is no longer the version that was to be
// changed.
var ErrChangedSince = errors.New("it was changed meanwhile")

// ErrTooManyTokens means that a node has the maximum number of valid tokens.
var ErrTooManyTokens = errors.New("too many old tokens still work")

// ErrTooManySecrets means that a sender has the maximum number of valid secrets, so that no new one
// is stored.
var ErrTooManySecrets = errors.New("too many secrets still work")

// ErrIngressTooOld means that a live ingress has a version that cannot enforce the setting.
var ErrIngressTooOld = errors.New("an ingress that runs is too old for it")

// ErrLastSecret means that a sender that verifies requests would have no secret left.
var ErrLastSecret = errors.New("it is the sender's last secret")

// ErrNoSample means that a node has no sample payload.
var ErrNoSample = errors.New("no sample payload is configured")

// InvalidError describes a request of an operator that is not valid.
type InvalidError struct {
	Field   string // the field in the form of the operators' API, such as triggers[0].nodeId
	Problem string // what is wrong, for people
}

func (e *InvalidError) Error() string { return e.Field + ": " + e.Problem }
