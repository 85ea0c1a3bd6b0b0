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

// MaxKeys is the maximum number of keys that may exist at the same time.
const MaxKeys = 10_000

// KeySpec describes a key to create.
type KeySpec struct {
	ID        string
	Name      string
	Role      string            // viewer, editor or admin
	AccountID string            // "" means all accounts
	SHA256    [sha256.Size]byte // of the key's text
	ExpiresAt time.Time         // the zero time means never
}

// CreateKey stores a key whose ID and hash are new. When it returns, every executor accepts the
// key, because an executor that lags behind catches up before it rejects an unknown key.
func (e *Editor) CreateKey(ctx context.Context, spec KeySpec) (k *registry.Key, err error) {
	if err := errors.Join(checkID("id", spec.ID), checkText("name", spec.Name)); err != nil {
		return nil, err
	}
	if spec.Name == "" {
		return nil, &InvalidError{"name", "is required"}
	}
	k = &registry.Key{
		ID: spec.ID, Name: spec.Name, Role: spec.Role, AccountID: spec.AccountID, Hash: spec.SHA256,
		CreatedAt: e.now(),
	}
	if !spec.ExpiresAt.IsZero() {
		k.ExpiresAt = spec.ExpiresAt.UTC().Truncate(time.Microsecond)
	}
	err = e.change(ctx, func() (uint64, error) {
		if have, ok := e.directory.Key(spec.ID); ok {
			// An earlier attempt stored it, but the response was lost.
			return have.Revision, errUnchanged
		}
		if _, ok := e.directory.Account(spec.AccountID); !ok && spec.AccountID != "" {
			return 0, invalidAccount(spec.AccountID)
		}
		if len(e.directory.Keys("", MaxKeys)) == MaxKeys {
			return 0, &InvalidError{
				"name", fmt.Sprintf("there are %d keys already; revoke some", MaxKeys),
			}
		}
		return e.put(ctx, e.registry, registry.APIKeyPrefix+spec.ID, k, 0)
	})
	if _, lagging := errors.AsType[*consistency.LaggingError](err); lagging {
		err = nil // a process that lags behind catches up before it rejects an unknown key
	}
	return k, err
}

// DeleteKey deletes a key.
func (e *Editor) DeleteKey(ctx context.Context, id string) error {
	return e.change(ctx, func() (uint64, error) {
		have, ok := e.directory.Key(id)
		if !ok {
			return 0, &NotFoundError{fmt.Sprintf("key %q", id)}
		}
		return e.remove(ctx, registry.APIKeyPrefix+id, have.Revision)
	})
}
