package execution

import "crypto/sha256"

// SHA256 returns the SHA-256 of the concatenated parts. It does not allocate memory for up to 512
// bytes, because an ingress calls it twice for each request.
func SHA256(parts ...string) [sha256.Size]byte {
	var buffer [512]byte
	text := buffer[:0]
	for _, part := range parts {
		text = append(text, part...)
	}
	return sha256.Sum256(text)
}
