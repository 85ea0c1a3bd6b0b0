package operate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/shared/registry/edit"
)

// Caller is the authenticated caller of a method. Every method of Service has a Caller parameter,
// and rejects the zero Caller.
type Caller struct {
	Kind CallerKind
	// ID is the ID of the key, or of the user at the identity provider. It is "" for the admin
	// token.
	ID string
	// Name is a human-readable name, shown for example in the audit log. It does not identify the
	// caller.
	Name string
	Role Role
	// AccountID is the only account that the caller has access to. "" means all accounts.
	AccountID string
}

// Identity identifies a caller, regardless of its name and role. It is comparable, so it can be a
// map key.
type Identity struct {
	Kind CallerKind
	ID   string
}

// Identity returns the kind and the ID of the caller.
func (c Caller) Identity() Identity { return Identity{c.Kind, c.ID} }

// CallerKind says how a caller was authenticated.
type CallerKind string

// The kinds of callers.
const (
	// CallerKindAdminToken means the admin token, or a session that began with it.
	CallerKindAdminToken CallerKind = api.CallerAdminToken
	CallerKindKey        CallerKind = api.CallerKey // a key, or a session that began with it
	// CallerKindUser means a session that began at an identity provider.
	CallerKindUser CallerKind = api.CallerUser
)

// AdminCaller returns the caller that authenticates with the admin token. It has the role RoleAdmin
// and access to all accounts.
func AdminCaller() Caller {
	return Caller{Kind: CallerKindAdminToken, Name: "admin token", Role: RoleAdmin}
}

// Role is a set of permissions. Each role includes the permissions of the roles before it.
type Role string

// The roles. Package api says what each of them allows.
const (
	RoleViewer Role = api.RoleViewer
	RoleEditor Role = api.RoleEditor
	RoleAdmin  Role = api.RoleAdmin
)

var roles = []Role{RoleViewer, RoleEditor, RoleAdmin}

// Roles returns all roles, from the fewest permissions to the most.
func Roles() []Role { return slices.Clone(roles) }

// ParseRole returns the role with the given name. Its second result is false if there is none.
func ParseRole(name string) (Role, bool) { return Role(name), slices.Contains(roles, Role(name)) }

// Includes reports whether the role has all permissions of another role. An unknown role includes
// no role and is included in none.
func (r Role) Includes(other Role) bool {
	return slices.Contains(roles, other) && slices.Index(roles, r) >= slices.Index(roles, other)
}

// accessRule decides which callers may make a call. The functions that run calls, such as runRead,
// require a rule, so no call goes unchecked. The zero rule rejects every caller.
type accessRule struct {
	role  Role
	check accessCheck
}

// newAccessRule returns the rule for the operation with the given name: the caller needs the role
// that the table operations lists for it, and must pass check. If the table lacks the operation,
// the rule rejects every caller.
func newAccessRule(operation string, check accessCheck) accessRule {
	return accessRule{roleByName[operation], check}
}

// accessCheck returns an error unless a call concerns the caller's account. It runs only for
// callers with access to a single account. For another account's object, it returns the same error
// as for an object that does not exist.
type accessCheck func(ctx context.Context, s *Service, caller Caller) error

// accessUnrestricted is the check that accepts every caller. It is for calls that concern no
// account, and for calls whose result leaves out whatever the caller has no access to.
func accessUnrestricted(context.Context, *Service, Caller) error { return nil }

// accessToAllAccounts is the check for calls about all accounts. It rejects every caller, because
// checks run only for callers that are restricted to one account.
func accessToAllAccounts(context.Context, *Service, Caller) error {
	return &Error{
		Code:   api.CodeForbidden,
		Detail: "This is about all accounts, and you have access to one.",
	}
}

// accessToAccount returns the check for calls about one account, which fails unless it is the
// caller's account.
func accessToAccount(id string) accessCheck {
	return func(_ context.Context, _ *Service, caller Caller) error {
		if id != caller.AccountID {
			return notFoundError("account", id, "")
		}
		return nil
	}
}

// accessToWorkflow returns the check for calls about one workflow, which must belong to the
// caller's account.
func accessToWorkflow(id string) accessCheck {
	return func(ctx context.Context, s *Service, caller Caller) error {
		w, err := s.currentWorkflow(ctx, id)
		if err == nil && w.AccountID != caller.AccountID {
			err = notFoundError("workflow", id, "")
		}
		return err
	}
}

// accessToNewWorkflow returns the check for calls that create or replace a workflow in an account.
// The account must be the caller's. If the workflow exists, its current account must be the
// caller's as well.
func accessToNewWorkflow(id, accountID string) accessCheck {
	return func(ctx context.Context, s *Service, caller Caller) error {
		if err := s.config.Editor.EnsureCurrent(ctx); err != nil {
			return err
		}
		if have, ok := s.config.RegistryIndex.Workflow(id); ok &&
			have.Record.AccountID != caller.AccountID {
			return notFoundError("workflow", id, "")
		}
		if accountID != caller.AccountID {
			return unknownAccountError(accountID)
		}
		return nil
	}
}

func unknownAccountError(id string) error {
	return &Error{Code: api.CodeInvalid, Fields: []api.FieldError{{
		Field: "accountId", Problem: fmt.Sprintf("there is no account %q; "+
			"create it first: hookstart account put %s", id, id),
	}}}
}

// accessToExecution returns the check for calls about one execution, which must belong to the
// caller's account.
func accessToExecution(id string) accessCheck {
	return func(ctx context.Context, s *Service, caller Caller) error {
		record, err := s.record(ctx, id)
		if err == nil && record.AccountID != caller.AccountID {
			err = executionNotFoundError(id)
		}
		return err
	}
}

// accessToDeadLetter returns the check for calls about one dead letter, which is either a failed
// execution or a message that was put aside. To an execution, the usual rules apply. A caller with
// access to a single account may not access a message that was put aside, because its account is
// not reliably known.
func accessToDeadLetter(id string) accessCheck {
	return func(ctx context.Context, s *Service, caller Caller) error {
		if _, isMessage := parseMessageDeadLetterID(id); isMessage {
			return notFoundError("dead letter", id, "")
		}
		return accessToExecution(id)(ctx, s, caller)
	}
}

// impossibleAccountID is an account ID that cannot exist, because IDs cannot contain a slash.
const impossibleAccountID = "/"

// narrowToCallerAccount returns the check for calls that search one account, or all accounts if
// *accountID is "". The check never fails. Instead, for a caller with access to a single account,
// it replaces *accountID: "" becomes the caller's account, and another account becomes
// impossibleAccountID, so that the search finds nothing. The call must therefore read *accountID
// only after the check.
func narrowToCallerAccount(accountID *string) accessCheck {
	return func(_ context.Context, _ *Service, caller Caller) error {
		switch *accountID {
		case caller.AccountID:
		case "":
			*accountID = caller.AccountID
		default:
			*accountID = impossibleAccountID
		}
		return nil
	}
}

// RequireRole returns an error unless the caller has at least the given role. Every method of
// Service checks the role. HTTP servers also check it before they parse a request, so that a caller
// with too low a role does not get an error about the request's contents.
func (c Caller) RequireRole(least Role) error {
	if !slices.Contains([]CallerKind{CallerKindAdminToken, CallerKindKey, CallerKindUser},
		c.Kind) ||
		!slices.Contains(roles, c.Role) {
		return &Error{Code: api.CodeUnauthorized, Detail: "The call has no caller."}
	}
	if !c.Role.Includes(least) {
		return &Error{
			Code:   api.CodeForbidden,
			Detail: fmt.Sprintf("You have the role %s. This needs the role %s.", c.Role, least),
		}
	}
	return nil
}

// checkAllowed returns an error unless the rule r allows the caller to make the call.
func (s *Service) checkAllowed(ctx context.Context, caller Caller, r accessRule) error {
	if r.check == nil {
		r.role = "" // no role includes "", so every caller is rejected
	}
	if err := caller.RequireRole(r.role); err != nil {
		return err
	}
	if caller.Kind == CallerKindKey {
		// checkAllowed runs again for each event of an event stream, so a revoked key gets no
		// further events.
		if err := s.config.Keyring.recheckKey(ctx, caller); err != nil {
			return err
		}
	}
	if caller.AccountID == "" {
		return nil
	}
	return r.check(ctx, s, caller)
}

// canAccessAccount reports whether a caller has access to an account's objects.
func (c Caller) canAccessAccount(accountID string) bool {
	return c.AccountID == "" || c.AccountID == accountID
}

// runRead checks that the caller may make a call that only reads, and runs the call. The timeout of
// the call is readTimeout.
func runRead[T any](
	ctx context.Context, s *Service, caller Caller, r accessRule, call func(context.Context) (T,
		error),
) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return checkAndCall(ctx, s, caller, r, call)
}

// runChange checks that the caller may make a call that changes something, and runs the call with
// the given timeout. The call continues even if the client disconnects: otherwise, a change could
// be stored but never confirmed.
func runChange[T any](
	ctx context.Context, s *Service, caller Caller, r accessRule, timeout time.Duration, call func(
		context.Context,
	) (T, error),
) (T, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	return checkAndCall(withActor(ctx, caller), s, caller, r, call)
}

// runChangeWithoutResult is like runChange, for a call that returns no result. within is the
// timeout of the call.
func (s *Service) runChangeWithoutResult(
	ctx context.Context, caller Caller, r accessRule, within time.Duration,
	call func(context.Context) error,
) error {
	_, err := runChange(ctx, s, caller, r, within, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, call(ctx)
	})
	return err
}

// withActor returns a context for changes that are attributed to the caller in the audit log.
func withActor(ctx context.Context, caller Caller) context.Context {
	return edit.WithActor(ctx, edit.Actor{
		Kind: string(caller.Kind), ID: caller.ID, Name: caller.Name,
	})
}

func checkAndCall[T any](
	ctx context.Context, s *Service, caller Caller, r accessRule, call func(context.Context) (T,
		error),
) (result T, err error) {
	if err = s.checkAllowed(ctx, caller, r); err == nil {
		result, err = call(ctx)
	}
	if err != nil {
		return result, s.toError(ctx, err)
	}
	return result, nil
}
