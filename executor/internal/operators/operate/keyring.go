package operate

import (
	"context"
	"crypto/sha256"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/edit"
)

// APIKeyPrefix is the prefix of every key. It makes a leaked key recognizable.
const APIKeyPrefix = "hsk_"

const (
	// lastUseSaveInterval is the interval at which an executor saves the last-use times of keys to
	// the database.
	lastUseSaveInterval = 5 * time.Second
	// expiredKeyRetention is how long an expired key stays in the list.
	expiredKeyRetention = 24 * time.Hour
	// expiredKeyCheckInterval is the interval at which expired keys are deleted.
	expiredKeyCheckInterval = 10 * time.Minute
)

// Keyring looks up the caller that a key belongs to. A revocation takes effect with the next call:
// keys are in the registry, which confirms a change only after every executor has applied it.
// Keyring is safe for concurrent use.
type Keyring struct {
	editor    *edit.Editor
	index     *edit.RegistryIndex
	tokenUses store.TokenUseStore
	log       logrus.FieldLogger
	now       func() time.Time

	mu              sync.Mutex
	unsavedLastUses map[string]time.Time // last uses not in the database yet, by key ID
}

// NewKeyring returns a Keyring that reads keys from index, which must be the editor's own
// RegistryIndex. It saves the times at which keys were used only while Run is running.
func NewKeyring(
	editor *edit.Editor, index *edit.RegistryIndex, tokenUses store.TokenUseStore,
	log logrus.FieldLogger,
) *Keyring {
	return &Keyring{
		editor:          editor,
		index:           index,
		tokenUses:       tokenUses,
		log:             log,
		now:             time.Now,
		unsavedLastUses: map[string]time.Time{},
	}
}

// CallerByKey returns the caller that a key belongs to. known is false if text is not a key, or if
// the key is revoked or expired. An error means that the registry could not be read.
func (k *Keyring) CallerByKey(ctx context.Context, text string) (caller Caller, known bool,
	err error,
) {
	if !strings.HasPrefix(text, APIKeyPrefix) {
		return caller, false, nil
	}
	if err := k.ensureCurrent(ctx); err != nil {
		return caller, false, err
	}
	key, ok := k.index.APIKeyByHash(sha256.Sum256([]byte(text)))
	return k.callerOf(key, ok)
}

// CallerByKeyID is like CallerByKey, but accepts the ID of the key, as stored in a session.
func (k *Keyring) CallerByKeyID(ctx context.Context, id string) (caller Caller, known bool,
	err error,
) {
	if err := k.ensureCurrent(ctx); err != nil {
		return caller, false, err
	}
	key, ok := k.index.APIKey(id)
	return k.callerOf(key.Record, ok)
}

func (k *Keyring) ensureCurrent(ctx context.Context) error {
	// Keys must also work while a backup is being restored.
	if err := k.editor.EnsureCurrentUnlessRestoring(ctx); err != nil {
		return &Error{Code: api.CodeUnavailable, Cause: err}
	}
	return nil
}

func (k *Keyring) callerOf(key *registry.APIKey, exists bool) (c Caller, known bool, err error) {
	now := k.now()
	if !exists || hasExpired(key, now) {
		return c, false, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.unsavedLastUses[key.ID] = now
	return Caller{
		Kind:      CallerKindKey,
		ID:        key.ID,
		Name:      key.Name,
		Role:      Role(key.Role),
		AccountID: key.AccountID,
	}, true, nil
}

func hasExpired(key *registry.APIKey, now time.Time) bool {
	return !key.ExpiresAt.IsZero() && !now.Before(key.ExpiresAt)
}

// recheckKey returns an error if the caller's key is revoked, expired or changed. If k is nil,
// there are no keys, so it always returns an error.
func (k *Keyring) recheckKey(ctx context.Context, caller Caller) error {
	revoked := &Error{Code: api.CodeUnauthorized, Detail: "The key was revoked, or has expired."}
	if k == nil {
		return revoked
	}
	present, known, err := k.CallerByKeyID(ctx, caller.ID)
	if err == nil && (!known || present != caller) {
		err = revoked
	}
	return err
}

// watchKeyEnd returns a channel that is closed when a key is revoked or expires. The caller must
// call forget when it no longer needs the channel.
func (k *Keyring) watchKeyEnd(id string) (ended <-chan struct{}, forget func()) {
	gone, forgetGone := k.index.WatchAPIKeyDeletion(id)
	key, ok := k.index.APIKey(id)
	if !ok || key.Record.ExpiresAt.IsZero() {
		return gone, forgetGone
	}
	both, left := make(chan struct{}), make(chan struct{})
	go func() {
		expiry := time.NewTimer(time.Until(key.Record.ExpiresAt))
		defer expiry.Stop()
		defer close(both)
		select {
		case <-gone:
		case <-expiry.C:
		case <-left:
		}
	}()
	return both, func() { close(left); forgetGone() }
}

// lastUses returns the last-use times of keys, by ID, including uses that are not in the database
// yet. Keys that were never used are not in the map.
func (k *Keyring) lastUses(ctx context.Context, ids []string) (map[string]time.Time, error) {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = lastUseName(id)
	}
	stored, err := k.tokenUses.TokensLastUsed(ctx, names)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	last := make(map[string]time.Time, len(ids))
	for _, id := range ids {
		at := stored[lastUseName(id)]
		if here := k.unsavedLastUses[id]; here.After(at) {
			at = here
		}
		if !at.IsZero() {
			last[id] = at.UTC().Truncate(time.Microsecond)
		}
	}
	return last, nil
}

// lastUseName returns the name under which the store keeps a key's last use. The store also keeps
// the last uses of webhook tokens, but under hexadecimal names, so that the names cannot collide.
func lastUseName(id string) string { return "key." + id }

// Run stores when keys were last used, and deletes expired keys, until the context is done. A crash
// loses the uses of the last few seconds.
func (k *Keyring) Run(ctx context.Context) {
	saveTicker := time.NewTicker(lastUseSaveInterval)
	expiryTicker := time.NewTicker(expiredKeyCheckInterval)
	defer saveTicker.Stop()
	defer expiryTicker.Stop()
	for {
		select {
		case <-ctx.Done():
			k.storeLastUses(context.WithoutCancel(ctx))
			return
		case <-saveTicker.C:
			k.storeLastUses(ctx)
		case <-expiryTicker.C:
			k.deleteExpiredKeys(ctx)
		}
	}
}

func (k *Keyring) storeLastUses(ctx context.Context) {
	k.mu.Lock()
	used := k.unsavedLastUses
	k.unsavedLastUses = make(map[string]time.Time, len(used))
	k.mu.Unlock()
	if len(used) == 0 {
		return
	}
	uses := make([]store.TokenUse, 0, len(used))
	for id, at := range used {
		uses = append(uses, store.TokenUse{TokenID: lastUseName(id), At: at})
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if err := k.tokenUses.AddTokenUses(ctx, uses); err != nil {
		k.mu.Lock() // keep the uses, to store them later
		defer k.mu.Unlock()
		maps.Copy(used, k.unsavedLastUses)
		k.unsavedLastUses = used
	}
}

// deleteExpiredKeys deletes keys that expired more than expiredKeyRetention ago. Otherwise, an
// application that creates short-lived keys for its web pages would accumulate them.
func (k *Keyring) deleteExpiredKeys(ctx context.Context) {
	for _, key := range k.index.APIKeys("", maxKeysPerExpiryCheck) {
		if !hasExpired(key, k.now().Add(-expiredKeyRetention)) {
			continue
		}
		if err := k.editor.DeleteAPIKey(ctx, key.ID); err != nil && ctx.Err() == nil {
			k.log.WithError(err).Warn("could not delete expired keys; retrying later")
			return
		}
	}
}

// maxKeysPerExpiryCheck is the maximum number of keys in one check for expired keys. No more keys
// than this can exist, so every check covers all of them.
const maxKeysPerExpiryCheck = edit.MaxAPIKeys
