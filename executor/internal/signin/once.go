package signin

import (
	"crypto/sha256"
	"crypto/subtle"
	"sync/atomic"
	"time"
)

// onceLifetime is the time for which a link signs in: it is printed at the start, and others may
// read the journal later.
const onceLifetime = 10 * time.Minute

// once is a nonce that works once and for a limited time.
type once struct {
	hash [sha256.Size]byte
	left atomic.Bool
	ends time.Time
	now  func() time.Time
}

func newOnce(nonce string) *once {
	o := &once{
		hash: sha256.Sum256([]byte(nonce)),
		ends: time.Now().Add(onceLifetime),
		now:  time.Now,
	}
	o.left.Store(nonce != "")
	return o
}

// consume reports whether the text is the nonce, for the first time and in time.
func (o *once) consume(nonce string) bool {
	given := sha256.Sum256([]byte(nonce))
	return subtle.ConstantTimeCompare(given[:], o.hash[:]) == 1 && o.now().Before(o.ends) &&
		o.left.CompareAndSwap(true, false)
}
