package operate

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/edit"
)

const keysCursorKind = "keys"

// WhoAmI returns the caller's kind, ID, name, role and account.
func (s *Service) WhoAmI(ctx context.Context, caller Caller) (api.WhoAmI, error) {
	return runRead(ctx, s, caller, newAccessRule("WhoAmI", accessUnrestricted), func(
		context.Context,
	) (api.WhoAmI, error) {
		return api.WhoAmI{
			Kind:      string(caller.Kind),
			ID:        caller.ID,
			Name:      caller.Name,
			Role:      string(caller.Role),
			AccountID: caller.AccountID,
		}, nil
	})
}

// Keys lists the keys, sorted by ID. If accountID is not empty, it lists only that account's keys.
func (s *Service) Keys(
	ctx context.Context, caller Caller, accountID string, page PageOptions,
) (api.List[api.Key], error) {
	return runRead(ctx, s, caller, newAccessRule("Keys", accessToAllAccounts),
		func(ctx context.Context) (none api.List[api.Key], err error) {
			after, err := page.cursorPosition(keysCursorKind)
			if err != nil {
				return none, err
			}
			var found []*registry.APIKey
			var ids []string
			for _, key := range s.config.RegistryIndex.APIKeys(after, edit.MaxAPIKeys) {
				if accountID == "" || key.AccountID == accountID {
					found, ids = append(found, key), append(ids, key.ID)
				}
				if len(found) > page.Limit {
					break
				}
			}
			used, err := s.config.Keyring.lastUses(ctx, ids)
			if err != nil {
				return none, err
			}
			return newListPage(keysCursorKind, found, page, func(key *registry.APIKey) api.Key {
				return keyOf(key, used[key.ID])
			}, func(r *registry.APIKey) string { return r.ID }), nil
		})
}

// Key returns a key, without the time of its last use.
func (s *Service) Key(ctx context.Context, caller Caller, id string) (api.Key, error) {
	return runRead(ctx, s, caller, newAccessRule("Key", accessToAllAccounts),
		func(ctx context.Context) (none api.Key, err error) {
			if err := s.config.Editor.EnsureCurrent(ctx); err != nil {
				return none, err
			}
			key, ok := s.config.RegistryIndex.APIKey(id)
			if !ok {
				return none, notFoundError("key", id, "")
			}
			return keyOf(key.Record, time.Time{}), nil
		})
}

// CreateKey creates a key. Only the result of this call contains the secret, which cannot be read
// later. A repeated call creates another key.
func (s *Service) CreateKey(
	ctx context.Context, caller Caller, put api.PutKey,
) (api.NewKey, error) {
	return runChange(ctx, s, caller, newAccessRule("CreateKey", accessToAllAccounts),
		s.config.ChangeTimeout,
		func(ctx context.Context) (none api.NewKey, err error) {
			if err := s.checkKey(put); err != nil {
				return none, err
			}
			text := APIKeyPrefix + randomText(32)
			made, err := s.config.Editor.CreateAPIKey(ctx, edit.APIKeySpec{
				ID: "key_" + randomText(
					9,
				), Name: put.Name, Role: put.Role, AccountID: put.AccountID,
				SHA256: sha256.Sum256([]byte(text)), ExpiresAt: put.ExpiresAt,
			})
			if err != nil {
				return none, err
			}
			return api.NewKey{Key: keyOf(made, time.Time{}), Secret: text}, nil
		})
}

func (s *Service) checkKey(put api.PutKey) error {
	var wrong []api.FieldError
	role, ok := ParseRole(put.Role)
	switch {
	case !ok:
		wrong = append(wrong, api.FieldError{
			Field:   "role",
			Problem: "must be viewer, editor or admin",
		})
	case role == RoleAdmin && put.AccountID != "":
		wrong = append(wrong, api.FieldError{
			Field:   "accountId",
			Problem: "an admin has access to all accounts; leave it out, or make an editor",
		})
	}
	if !put.ExpiresAt.IsZero() && !put.ExpiresAt.After(time.Now()) {
		wrong = append(wrong, api.FieldError{Field: "expiresAt", Problem: "must be in the future"})
	}
	if len(wrong) > 0 {
		return &Error{Code: api.CodeInvalid, Fields: wrong}
	}
	return nil
}

// RevokeKey revokes a key. When it returns without an error, no executor accepts the key any more.
func (s *Service) RevokeKey(ctx context.Context, caller Caller, id string) error {
	return s.runChangeWithoutResult(ctx, caller, newAccessRule("RevokeKey", accessToAllAccounts),
		s.config.ChangeTimeout,
		func(ctx context.Context) error {
			return s.config.Editor.DeleteAPIKey(ctx, id)
		})
}

func keyOf(k *registry.APIKey, lastUsed time.Time) api.Key {
	return api.Key{
		ID: k.ID, Name: k.Name, Role: k.Role, AccountID: k.AccountID,
		CreatedAt: k.CreatedAt, ExpiresAt: k.ExpiresAt, LastUsedAt: lastUsed,
	}
}

// randomText returns n random bytes, encoded as unpadded base64url.
func randomText(n int) string {
	bits := make([]byte, n)
	_, _ = rand.Read(bits) // never fails, as crypto/rand documents
	return base64.RawURLEncoding.EncodeToString(bits)
}
