package registry

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"

	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/webhook"
)

// TokenHash is the SHA-256 hash of a token's text. The ingress has only the hashes of tokens.
type TokenHash [sha256.Size]byte

// NewToken returns a new token: webhook.TokenPrefix, followed by 256 random bits in URL-safe
// base64.
func NewToken() string {
	var bits [32]byte
	_, _ = rand.Read(bits[:]) // never fails, as crypto/rand documents
	return webhook.TokenPrefix + base64.RawURLEncoding.EncodeToString(bits[:])
}

// HashToken returns the hash of a token's text. It accepts any text, even one that is no valid
// token.
func HashToken(token string) TokenHash { return execution.SHA256(token) }

// ID returns 16 hex digits that identify a token in places where its text must not appear.
func (h TokenHash) ID() string { return hex.EncodeToString(h[:8]) }
