// Package probe lets an executor find out whether a URL reaches an ingress of its installation. The
// executor sends a request that starts nothing, with a challenge in a header. The ingress responds
// in a header of the usual response.
//
// Each ingress creates a key and sends it to the executors over NATS. Challenges and responses are
// signed with that key. So only an executor can send a challenge, only an ingress of this
// installation can respond, and others cannot detect the probes.
package probe

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strings"
	"sync"
)

// Header is the header that contains the challenge in a request, and the response to it in the
// ingress's response.
const Header = "Hookstart-Probe"

// maxKeysPerChallenge is the maximum number of keys, and thus of ingresses, in one challenge. An
// installation with more ingresses needs several challenges, because the URL may reach any ingress.
const maxKeysPerChallenge = 50

// NewKey returns a random key, with which one ingress proves that it received a Challenge.
func NewKey() []byte {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // never fails, as crypto/rand documents
	return key
}

// Challenge asks whether a request has reached one of the ingresses that hold certain keys. Each
// ingress responds to it only once.
type Challenge struct {
	nonce string
	keys  [][]byte
}

// NewChallenge returns a new challenge addressed to the ingresses that hold the keys. Keys beyond
// maxKeysPerChallenge are ignored.
func NewChallenge(keys [][]byte) Challenge {
	return Challenge{nonce: rand.Text(), keys: keys[:min(len(keys), maxKeysPerChallenge)]}
}

// HeaderValue returns the value of the header that contains the challenge.
func (c Challenge) HeaderValue() string {
	parts := []string{c.nonce}
	for _, key := range c.keys {
		parts = append(parts, sign(key, "question", c.nonce))
	}
	return strings.Join(parts, ".")
}

// IsValidResponse reports whether a response to the challenge is valid, which means that it is
// signed with one of the challenge's keys.
func (c Challenge) IsValidResponse(response string) bool {
	return slices.ContainsFunc(c.keys, func(key []byte) bool {
		return hmac.Equal([]byte(response), []byte(sign(key, "answer", c.nonce)))
	})
}

// Responder responds to the challenges that one ingress receives, and refuses repeated ones. It is
// safe for concurrent use.
type Responder struct {
	key []byte

	mu         sync.Mutex
	seenNonces [maxRememberedNonces]string // the nonces of the most recent challenges
	nextIndex  int
}

// maxRememberedNonces is the number of nonces that are kept to refuse replayed challenges.
const maxRememberedNonces = 1000

// NewResponder returns a Responder for challenges that are signed with the key.
func NewResponder(key []byte) *Responder { return &Responder{key: key} }

// maxChallengeBytes limits the length of a challenge in bytes. A challenge to maxKeysPerChallenge
// ingresses is shorter.
const maxChallengeBytes = 2 << 10

// Respond returns the response to a challenge, or "" if the challenge is malformed, is not signed
// with this ingress's key, or has been received before.
func (r *Responder) Respond(challenge string) string {
	if challenge == "" || len(challenge) > maxChallengeBytes {
		return ""
	}
	nonce, signatures, _ := strings.Cut(challenge, ".")
	want := []byte(sign(r.key, "question", nonce))
	addressed := false
	for signature := range strings.SplitSeq(signatures, ".") {
		addressed = addressed || hmac.Equal([]byte(signature), want)
	}
	if !addressed || !r.recordNonceIfNew(nonce) {
		return ""
	}
	return sign(r.key, "answer", nonce)
}

// recordNonceIfNew reports whether a nonce is new, and records it.
func (r *Responder) recordNonceIfNew(nonce string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Contains(r.seenNonces[:], nonce) {
		return false
	}
	r.seenNonces[r.nextIndex] = nonce
	r.nextIndex = (r.nextIndex + 1) % maxRememberedNonces
	return true
}

// sign returns the first half of the HMAC-SHA256 of purpose and nonce, in base64url. Half of it is
// enough, because each challenge and each response is used only once.
func sign(key []byte, purpose, nonce string) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(purpose + " " + nonce))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:sha256.Size/2])
}
