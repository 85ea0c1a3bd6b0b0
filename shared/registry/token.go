package registry

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"

	"github.com/hookstart/hookstart/shared/execution"
)

// TokenPrefix begins every token, so that a leaked one is recognised.
const TokenPrefix = "hst_"

// TokenHash is the SHA-256 of a token's text. The ingress knows tokens by their hashes only.
type TokenHash [sha256.Size]byte

// NewToken makes a token: 256 random bits, URL-safe.
func NewToken() string {
	var bits [32]byte
	_, _ = rand.Read(bits[:]) // never fails: crypto/rand says so
	return TokenPrefix + base64.RawURLEncoding.EncodeToString(bits[:])
}

// HashToken is the hash of a token, of any text.
func HashToken(token string) TokenHash { return execution.SHA256(token) }

// ID identifies a token where its text must not appear: 16 hex digits.
func (h TokenHash) ID() string { return hex.EncodeToString(h[:8]) }
