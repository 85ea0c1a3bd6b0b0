package edit

import (
	"errors"
	"fmt"
)

// ErrNotFound means that there is no such account, workflow or trigger node, which the *NotFoundError names.
var ErrNotFound = errors.New("not found")

// NotFoundError says what there is not.
type NotFoundError struct {
	What string // for people: workflow "orders"
}

func (e *NotFoundError) Error() string { return e.What + ": " + ErrNotFound.Error() }

// Is makes it an ErrNotFound.
func (e *NotFoundError) Is(target error) bool { return target == ErrNotFound }

func noWorkflow(id string) error { return &NotFoundError{fmt.Sprintf("workflow %q", id)} }

// ErrPlanLimit means that the account's plan lets no further workflow be active.
var ErrPlanLimit = errors.New("the plan's number of active webhook workflows is reached")

// ErrNotInPlan means that the account's plan has no webhook triggers.
var ErrNotInPlan = errors.New("the plan has no webhook triggers")

// ErrAccountNotEmpty means that an account has workflows or keys, and so is not deleted.
var ErrAccountNotEmpty = errors.New("it has workflows or keys")

// ErrChangedSince means that a workflow or an account is not the version any more that was to be changed.
var ErrChangedSince = errors.New("it was changed meanwhile")

// ErrTooManyTokens means that a node has the maximum number of valid tokens.
var ErrTooManyTokens = errors.New("too many old tokens still work")

// ErrTooManySecrets means that so many secrets of a sender still work that no new one is taken.
var ErrTooManySecrets = errors.New("too many secrets still work")

// ErrIngressTooOld means that an ingress that runs is of a version that cannot enforce what is to be set.
var ErrIngressTooOld = errors.New("an ingress that runs is too old for it")

// ErrLastSecret means that a sender that verifies would be left without a secret.
var ErrLastSecret = errors.New("it is the sender's last secret")

// ErrNoSample means that a node has no sample payload.
var ErrNoSample = errors.New("no sample payload is configured")

// InvalidError says what is wrong with what somebody asked for.
type InvalidError struct {
	Field   string // in the form of the operators' API: triggers[0].nodeId
	Problem string
}

func (e *InvalidError) Error() string { return e.Field + ": " + e.Problem }
