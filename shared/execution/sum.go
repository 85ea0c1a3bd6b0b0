package execution

import (
	"crypto/sha256"
	"strings"
)

// SHA256 returns the SHA-256 of the concatenated parts.
func SHA256(parts ...string) [sha256.Size]byte {
	return sha256.Sum256([]byte(strings.Join(parts, "")))
}
