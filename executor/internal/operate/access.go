package operate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/shared/registry/edit"
)

// Caller is who makes a call. Each method takes one, so that nothing is done for nobody: the
// zero Caller is refused.
type Caller struct {
	Kind Kind
	// ID is the key's, or the user's at their identity provider. "": the admin token.
	ID string
	// Name is for people.
	Name string
	Role Role
	// AccountID is the only account that the caller sees. "": all of them.
	AccountID string
}

// Kind is how a caller has proved who it is.
type Kind string

// The kinds of callers.
const (
	AdminToken Kind = api.CallerAdminToken // the admin token, or a session that began with it
	Key        Kind = api.CallerKey        // a key, or a session that began with it
	User       Kind = api.CallerUser       // a session that began at an identity provider
)

// TheAdmin is who has the admin token.
func TheAdmin() Caller { return Caller{Kind: AdminToken, Name: "admin token", Role: Admin} }

// Role is what a caller may do. Each role may do what those before it may.
type Role string

// The roles.
const (
	Viewer Role = api.RoleViewer // reads, but sees no token
	Editor Role = api.RoleEditor // changes workflows, their nodes and tokens; reruns and requeues
	Admin  Role = api.RoleAdmin  // changes accounts, and lets others in
)

var roles = []Role{Viewer, Editor, Admin}

// ParseRole reads the name of a role.
func ParseRole(name string) (Role, bool) { return Role(name), slices.Contains(roles, Role(name)) }

// Includes says whether the role may do what another may. No role includes an unknown one, and an unknown one
// includes none.
func (r Role) Includes(other Role) bool {
	return slices.Contains(roles, other) && slices.Index(roles, r) >= slices.Index(roles, other)
}

// rule says who may make a call. read and change take one, so that there is no call without
// it; the zero rule lets nobody in.
type rule struct {
	role  Role
	about subject
}

// needs is the rule for callers of at least a role, who see what the call is about.
func needs(role Role, about subject) rule { return rule{role, about} }

// subject is what a call is about. It is asked only for callers who see one account, by.AccountID: an error
// refuses the call. What belongs to another account is not found, with the same words as what does not exist.
type subject func(ctx context.Context, s *Service, by Caller) error

// ofNone: nothing that the call tells or changes belongs to an account.
func ofNone(context.Context, *Service, Caller) error { return nil }

// ofAll: the call is about all accounts at once.
func ofAll(context.Context, *Service, Caller) error {
	return &Error{Code: api.CodeForbidden, Detail: "This is about all accounts, and you have access to one."}
}

// ofAccount: the call is about one account.
func ofAccount(id string) subject {
	return func(_ context.Context, _ *Service, by Caller) error {
		if id != by.AccountID {
			return notFound("account", id, "")
		}
		return nil
	}
}

// ofWorkflow: the call is about one workflow.
func ofWorkflow(id string) subject {
	return func(ctx context.Context, s *Service, by Caller) error {
		if err := s.config.Editor.Current(ctx); err != nil {
			return err
		}
		if have, exists := s.config.Directory.Workflow(id); !exists || have.Record.AccountID != by.AccountID {
			return notFound("workflow", id, "")
		}
		return nil
	}
}

// ofNewWorkflow: the call is about one workflow of an account, which may not exist yet.
func ofNewWorkflow(id, accountID string) subject {
	return func(ctx context.Context, s *Service, by Caller) error {
		if err := s.config.Editor.Current(ctx); err != nil {
			return err
		}
		if have, exists := s.config.Directory.Workflow(id); exists && have.Record.AccountID != by.AccountID {
			return notFound("workflow", id, "")
		}
		if accountID != by.AccountID {
			return &Error{Code: api.CodeInvalid, Fields: []api.FieldError{{
				Field: "accountId", Problem: fmt.Sprintf("there is no account %q; create it first", accountID),
			}}}
		}
		return nil
	}
}

// ofExecution: the call is about one execution.
func ofExecution(id string) subject {
	return func(ctx context.Context, s *Service, by Caller) error {
		record, err := s.record(ctx, id)
		if err == nil && record.AccountID != by.AccountID {
			err = noExecution(id)
		}
		return err
	}
}

// ofDeadLetter: the call is about one dead letter. Messages that were put aside belong to no account that
// can be relied on.
func ofDeadLetter(id string) subject {
	return func(ctx context.Context, s *Service, by Caller) error {
		if _, isMessage := messageKey(id); isMessage {
			return notFound("dead letter", id, "")
		}
		return ofExecution(id)(ctx, s, by)
	}
}

// nobody is an account that does not exist, because it cannot: no ID holds a slash.
const nobody = "/"

// within: the call finds what belongs to an account (""  of all), and then only what the caller sees. It sets
// accountID, which the call must use: to the caller's, or to one that does not exist if another was asked for.
func within(accountID *string) subject {
	return func(_ context.Context, _ *Service, by Caller) error {
		switch *accountID {
		case by.AccountID:
		case "":
			*accountID = by.AccountID
		default:
			*accountID = nobody
		}
		return nil
	}
}

// allowed says whether a caller may make a call.
func (s *Service) allowed(ctx context.Context, by Caller, r rule) error {
	if !slices.Contains([]Kind{AdminToken, Key, User}, by.Kind) || !slices.Contains(roles, by.Role) {
		return &Error{Code: api.CodeUnauthorized, Detail: "The call has no caller."}
	}
	if r.about == nil || !by.Role.Includes(r.role) {
		return &Error{Code: api.CodeForbidden, Detail: fmt.Sprintf("You have the role %s. This needs the role %s.", by.Role, r.role)}
	}
	if by.Kind == Key {
		// Also in the middle of a stream of events: a revocation is in force from the very next answer.
		if err := s.config.Keyring.still(ctx, by); err != nil {
			return err
		}
	}
	if by.AccountID == "" {
		return nil
	}
	return r.about(ctx, s, by)
}

// sees says whether a caller sees what belongs to an account.
func (by Caller) sees(accountID string) bool { return by.AccountID == "" || by.AccountID == accountID }

// read makes a call that changes nothing.
func read[T any](ctx context.Context, s *Service, by Caller, r rule, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return checked(ctx, s, by, r, call)
}

// change makes a call that changes something within a time. A client that goes away does
// not break it off: half of a change would be left for somebody to confirm.
func change[T any](ctx context.Context, s *Service, by Caller, r rule, within time.Duration, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	ctx = edit.By(ctx, edit.Actor{Kind: string(by.Kind), ID: by.ID, Name: by.Name})
	return checked(ctx, s, by, r, call)
}

func checked[T any](ctx context.Context, s *Service, by Caller, r rule, call func(context.Context) (T, error)) (result T, err error) {
	if err = s.allowed(ctx, by, r); err == nil {
		result, err = call(ctx)
	}
	if err != nil {
		return result, s.explain(err)
	}
	return result, nil
}
