package edit

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/consistency"
)

// MaxAPIKeys is the maximum number of keys that may exist at the same time.
const MaxAPIKeys = 10_000

// APIKeySpec describes a key to create.
type APIKeySpec struct {
	ID        string
	Name      string
	Role      string            // viewer, editor or admin
	AccountID string            // "" means all accounts
	SHA256    [sha256.Size]byte // hash of the key's text
	ExpiresAt time.Time         // the zero time means never
}

// CreateAPIKey stores a key. The caller must have generated a new ID and a new secret text, whose
// hash is in spec. When CreateAPIKey returns without an error, every executor accepts the key,
// because an executor that lags behind catches up before it rejects an unknown key.
func (e *Editor) CreateAPIKey(
	ctx context.Context,
	spec APIKeySpec,
) (k *registry.APIKey, err error) {
	if err := errors.Join(checkID("id", spec.ID), checkDisplayName("name", spec.Name)); err != nil {
		return nil, err
	}
	if spec.Name == "" {
		return nil, &InvalidFieldError{"name", "is required"}
	}
	k = &registry.APIKey{
		ID: spec.ID, Name: spec.Name, Role: spec.Role, AccountID: spec.AccountID, Hash: spec.SHA256,
		CreatedAt: e.now(),
	}
	if !spec.ExpiresAt.IsZero() {
		k.ExpiresAt = spec.ExpiresAt.UTC().Truncate(time.Microsecond)
	}
	err = e.storeAndConfirm(ctx, func(ctx context.Context) (uint64, error) {
		if have, ok := e.index.APIKey(spec.ID); ok {
			// The caller generates a new ID for each key. So an earlier attempt has stored this
			// key, and its response was lost.
			return have.Revision, errUnchanged
		}
		if _, ok := e.index.Account(spec.AccountID); !ok && spec.AccountID != "" {
			return 0, unknownAccountError(spec.AccountID)
		}
		if len(e.index.APIKeys("", MaxAPIKeys)) == MaxAPIKeys {
			return 0, &InvalidFieldError{
				"name", fmt.Sprintf("there are %d keys already; revoke some", MaxAPIKeys),
			}
		}
		return e.put(ctx, e.registry, registry.APIKeyPrefix+spec.ID, k, 0)
	})
	if _, unconfirmed := errors.AsType[*consistency.UnconfirmedError](err); unconfirmed {
		err = nil // a process that lags behind catches up before it rejects an unknown key
	}
	return k, err
}

// DeleteAPIKey deletes a key. When it returns without an error, no executor accepts the key
// anymore.
func (e *Editor) DeleteAPIKey(ctx context.Context, id string) error {
	return e.storeAndConfirm(ctx, func(ctx context.Context) (uint64, error) {
		have, ok := e.index.APIKey(id)
		if !ok {
			return 0, &NotFoundError{fmt.Sprintf("key %q", id)}
		}
		return e.removeRecord(ctx, registry.APIKeyPrefix+id, have.Revision)
	})
}
