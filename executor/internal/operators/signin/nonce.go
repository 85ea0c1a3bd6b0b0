package signin

import (
	"crypto/sha256"
	"crypto/subtle"
	"sync/atomic"
	"time"
)

// signInLinkLifetime is how long the one-time sign-in link is valid. It is short because the link
// is printed to the log at startup, where others may read the link later.
const signInLinkLifetime = 10 * time.Minute

// oneTimeNonce is a nonce that is valid once and for a limited time.
type oneTimeNonce struct {
	hash      [sha256.Size]byte
	unused    atomic.Bool
	expiresAt time.Time
	now       func() time.Time
}

func newOneTimeNonce(nonce string) *oneTimeNonce {
	o := &oneTimeNonce{
		hash:      sha256.Sum256([]byte(nonce)),
		expiresAt: time.Now().Add(signInLinkLifetime),
		now:       time.Now,
	}
	o.unused.Store(nonce != "")
	return o
}

// consume reports whether nonce is the valid nonce. If it is, consume invalidates it.
func (o *oneTimeNonce) consume(nonce string) bool {
	given := sha256.Sum256([]byte(nonce))
	return subtle.ConstantTimeCompare(given[:], o.hash[:]) == 1 && o.now().Before(o.expiresAt) &&
		o.unused.CompareAndSwap(true, false)
}
