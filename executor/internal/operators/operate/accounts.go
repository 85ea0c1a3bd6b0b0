package operate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/edit"
)

const (
	plansCursorKind    = "plans"
	accountsCursorKind = "accounts"
)

// Plans lists the plans, in the order of the catalog file. If accountID is not empty, it lists only
// that account's plan.
func (s *Service) Plans(
	ctx context.Context, caller Caller, accountID string, page PageOptions,
) (api.List[api.Plan], error) {
	return runRead(ctx, s, caller, newAccessRule("Plans", accessUnrestricted),
		func(context.Context) (api.List[api.Plan], error) {
			plans := s.config.RegistryIndex.Plans().Record
			if accountID != "" {
				plans = s.visiblePlanAsList(caller, accountID, plans)
			}
			return newPageOfCatalog(plansCursorKind, plans, page, s.apiPlan,
				func(p registry.Plan) string { return p.ID })
		})
}

// visiblePlanAsList returns the plan of an account, as a list with one element. It returns nil if
// the caller has no access to the account, or if catalog lacks the account's plan.
func (s *Service) visiblePlanAsList(
	caller Caller, accountID string, catalog registry.Plans,
) registry.Plans {
	have, ok := s.config.RegistryIndex.Account(accountID)
	if !ok || !caller.canAccessAccount(accountID) {
		return nil
	}
	if plan := catalog.Find(have.Record.Plan); plan != nil {
		return registry.Plans{*plan}
	}
	return nil
}

// Accounts lists the accounts, sorted by ID. If accountID is not empty, it lists only that account.
func (s *Service) Accounts(
	ctx context.Context, caller Caller, accountID string, page PageOptions,
) (api.List[api.Account], error) {
	return runRead(ctx, s, caller, newAccessRule("Accounts", narrowToCallerAccount(&accountID)),
		func(context.Context) (none api.List[api.Account], err error) {
			after, err := page.cursorPosition(accountsCursorKind)
			if err != nil {
				return none, err
			}
			if accountID != "" {
				return newListPage(
					accountsCursorKind,
					s.accountAsList(accountID, after),
					page,
					apiAccount,
					func(
						r *registry.Account,
					) string {
						return r.ID
					},
				), nil
			}
			found := s.config.RegistryIndex.Accounts(after, page.Limit+1)
			return newListPage(
				accountsCursorKind,
				found,
				page,
				apiAccount,
				func(r *registry.Account) string {
					return r.ID
				},
			), nil
		})
}

// accountAsList returns a list with only the given account. The list is empty if the account does
// not exist, or if its ID is not after the cursor position.
func (s *Service) accountAsList(id, after string) []*registry.Account {
	have, ok := s.config.RegistryIndex.Account(id)
	if !ok || id <= after {
		return nil
	}
	return []*registry.Account{have.Record}
}

// Account returns an account, including all changes that were confirmed before the call. If it does
// not exist, the error has the code api.CodeNotFound.
func (s *Service) Account(ctx context.Context, caller Caller, id string) (api.Account, error) {
	return runRead(ctx, s, caller, newAccessRule("Account", accessToAccount(id)),
		func(ctx context.Context) (none api.Account, err error) {
			if err := s.config.Editor.EnsureCurrent(ctx); err != nil {
				return none, err
			}
			have, ok := s.config.RegistryIndex.Account(id)
			if !ok {
				return none, notFoundError("account", id, "")
			}
			return apiAccount(have.Record), nil
		})
}

// PutResult is the result of a call that created or replaced an object.
type PutResult[T any] struct {
	Value   T
	Created bool // whether the call created the object
}

// AccountETag returns a hash of the account's contents, for use as an ETag.
func AccountETag(a api.Account) string {
	text := fmt.Appendf(nil, "%q %q %q %d", a.ID, a.Name, a.Plan, a.CreatedAt.UnixMicro())
	if e := a.Events; e != nil {
		text = fmt.Appendf(text, " %q %q %d", e.WorkflowID, e.Kinds, e.SilentAfterSeconds)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// WithAccountIfMatch returns a context for a conditional change to an account. The change succeeds
// only if the account's current version has the given etag; otherwise, it fails with
// api.CodeChangedSince. An empty etag allows any version.
func WithAccountIfMatch(ctx context.Context, etag string) context.Context {
	if etag == "" {
		return ctx
	}
	return edit.WithAccountCondition(ctx, func(a *registry.Account) error {
		if a == nil || AccountETag(apiAccount(a)) != etag {
			return edit.ErrPreconditionFailed
		}
		return nil
	})
}

// WithAccountIfExists returns a context for a conditional change to an account. If the account does
// not exist, the change fails with api.CodeChangedSince instead of creating it.
func WithAccountIfExists(ctx context.Context) context.Context {
	return edit.WithAccountCondition(ctx, func(a *registry.Account) error {
		if a == nil {
			return edit.ErrPreconditionFailed
		}
		return nil
	})
}

// PatchAccount changes an account. patch modifies the settings that an operator can change; it may
// be called more than once.
func (s *Service) PatchAccount(
	ctx context.Context, caller Caller, id string, patch func(*api.PutAccount) error,
) (api.Account, error) {
	return runChange(ctx, s, caller, newAccessRule("PatchAccount", accessToAccount(id)),
		s.config.ChangeTimeout,
		func(ctx context.Context) (none api.Account, err error) {
			a, err := s.config.Editor.ChangeAccount(ctx, id, func(name, plan *string) error {
				put := api.PutAccount{Name: *name, Plan: *plan}
				if err := patch(&put); err != nil {
					return err
				}
				if put.Plan == "" {
					return &edit.InvalidFieldError{Field: "plan", Problem: "is required"}
				}
				*name, *plan = put.Name, put.Plan
				return nil
			})
			if err != nil {
				return none, err
			}
			return apiAccount(a), nil
		})
}

// PutAccount creates or replaces an account. If mustBeNew is true and the account exists, it fails
// with api.CodeChangedSince.
func (s *Service) PutAccount(
	ctx context.Context, caller Caller, id string, put api.PutAccount, mustBeNew bool,
) (PutResult[api.Account], error) {
	if mustBeNew {
		ctx = edit.WithAccountCondition(ctx, func(a *registry.Account) error {
			if a != nil {
				return edit.ErrPreconditionFailed
			}
			return nil
		})
	}
	return runChange(ctx, s, caller, newAccessRule("PutAccount", accessToAccount(id)),
		s.config.ChangeTimeout,
		func(ctx context.Context) (none PutResult[api.Account], err error) {
			plan, err := s.resolvePlan(id, put.Plan)
			if err != nil {
				return none, err
			}
			account, created, err := s.config.Editor.PutAccount(ctx, id, put.Name, plan)
			if err != nil {
				return none, err
			}
			return PutResult[api.Account]{apiAccount(account), created}, nil
		})
}

// resolvePlan returns the plan that a call names. If it names none, resolvePlan returns the
// account's current plan, or the default plan for a new account.
func (s *Service) resolvePlan(accountID, plan string) (string, error) {
	if plan != "" {
		return plan, nil
	}
	if have, ok := s.config.RegistryIndex.Account(accountID); ok {
		return have.Record.Plan, nil
	}
	if s.config.DefaultPlan == "" {
		return "", &edit.InvalidFieldError{
			Field:   "plan",
			Problem: "is required for a new account: there is no default plan (--default-plan)",
		}
	}
	return s.config.DefaultPlan, nil
}

func (s *Service) apiPlan(p registry.Plan) api.Plan {
	return api.Plan{
		Default: p.ID == s.config.DefaultPlan,
		ID:      p.ID, WebhookTriggers: p.WebhookTriggers,
		MaxActiveWebhookWorkflows: nilIfUnlimited(p.MaxActive),
		BytesPerDay:               nilIfUnlimited(p.BytesPerDay),
		RateLimit:                 apiRateLimit(p.RateLimit),
	}
}

func nilIfUnlimited(n int64) *int64 {
	if n == registry.Unlimited {
		return nil
	}
	return &n
}

func apiAccount(a *registry.Account) api.Account {
	return api.Account{
		ID:        a.ID,
		Name:      a.Name,
		Plan:      a.Plan,
		CreatedAt: a.CreatedAt,
		Events:    apiEventSubscription(a.Events),
	}
}

func apiRateLimit(l registry.RateLimit) api.RateLimit {
	return api.RateLimit{Requests: l.Requests, WindowSeconds: int64(l.Window / time.Second)}
}

func registryRateLimit(l *api.RateLimit) *registry.RateLimit {
	if l == nil {
		return nil
	}
	return &registry.RateLimit{
		Requests: l.Requests,
		Window:   time.Duration(l.WindowSeconds) * time.Second,
	}
}

// DeleteAccount deletes an account that has no workflows and no keys. The records of its executions
// are kept.
func (s *Service) DeleteAccount(ctx context.Context, caller Caller, id string) error {
	return s.runChangeWithoutResult(ctx, caller,
		newAccessRule("DeleteAccount", accessToAccount(id)), s.config.ChangeTimeout,
		func(ctx context.Context) error {
			return s.config.Editor.DeleteAccount(ctx, id)
		})
}
