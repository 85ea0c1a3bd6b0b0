package edit

import (
	"crypto/sha256"

	"github.com/hookstart/hookstart/shared/registry"
)

func (r *recordIndex) putAPIKey(k Versioned[*registry.APIKey]) {
	r.deleteAPIKey(k.Record.ID)
	r.apiKeys.Set(k.Record.ID, k)
	r.apiKeysByHash[k.Record.Hash] = k.Record
}

func (r *recordIndex) deleteAPIKey(id string) {
	if before, existed := r.apiKeys.Delete(id); existed {
		delete(r.apiKeysByHash, before.Record.Hash)
	}
}

// APIKey returns a key and its revision, and reports whether the key exists.
func (r *RegistryIndex) APIKey(id string) (Versioned[*registry.APIKey], bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.current.apiKeys.Get(id)
}

// APIKeyByHash returns the key whose text has the given SHA-256 hash, and reports whether it
// exists.
func (r *RegistryIndex) APIKeyByHash(sha256 [sha256.Size]byte) (*registry.APIKey, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	key, ok := r.current.apiKeysByHash[sha256]
	return key, ok
}

// APIKeys returns at most limit keys, sorted by ID, starting after the given ID.
func (r *RegistryIndex) APIKeys(after string, limit int) []*registry.APIKey {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return page(&r.current.apiKeys, after, limit)
}

// WatchAPIKeyDeletion returns a channel that is closed once the key with the given ID no longer
// exists. The caller must call forget when it stops waiting.
func (r *RegistryIndex) WatchAPIKeyDeletion(id string) (gone <-chan struct{}, forget func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := &apiKeyDeletionWatch{id: id, gone: make(chan struct{})}
	if _, ok := r.current.apiKeys.Get(id); !ok {
		close(w.gone)
		return w.gone, func() {}
	}
	r.keyDeletionWatches[w] = struct{}{}
	return w.gone, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.keyDeletionWatches, w)
	}
}

// apiKeyDeletionWatch is a pending call to WatchAPIKeyDeletion.
type apiKeyDeletionWatch struct {
	id   string
	gone chan struct{} // closed when the key no longer exists
}

// notifyAPIKeyDeletions closes the channels of the watches whose keys no longer exist. It must be
// called after keys have been deleted. The caller must hold mu.
func (r *RegistryIndex) notifyAPIKeyDeletions() {
	for w := range r.keyDeletionWatches {
		if _, ok := r.current.apiKeys.Get(w.id); !ok {
			delete(r.keyDeletionWatches, w)
			close(w.gone)
		}
	}
}
