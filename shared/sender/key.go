package sender

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"strings"
	"time"
)

// verificationKey is a secret, decoded for one of the sender's verification methods.
type verificationKey struct {
	methodIndex int
	id          string
	expiresAt   time.Time
	bytes       []byte
	ecdsaKey    *ecdsa.PublicKey
}

func (k *verificationKey) isValid(now time.Time) bool {
	return k.expiresAt.IsZero() || now.Before(k.expiresAt)
}

// secretPrefixError means that a secret does not have the prefix that a method expects, so it may
// be meant for another method. The error is reported only if no method fails with a more specific
// one.
type secretPrefixError struct{ text string }

func (e secretPrefixError) Error() string { return e.text }

// publicKeyPrefix is the prefix of a public key of Standard Webhooks.
const publicKeyPrefix = "whpk_"

// parseKey parses a secret. Its errors describe the expected form and never quote the secret.
func (m *method) parseKey(text string) (verificationKey, error) {
	what := "the secret"
	if m.scheme == schemeEd25519 || m.scheme == schemeECDSA {
		what = "the public key"
	}
	if p := m.spec.SecretPrefix; p != "" && !strings.HasPrefix(text, p) {
		return verificationKey{}, secretPrefixError{what + " must begin with " + p}
	}
	if p := m.spec.NotSecretPrefix; p != "" && strings.HasPrefix(text, p) {
		return verificationKey{}, secretPrefixError{what + " must not begin with " + p}
	}
	if m.scheme == schemeBasic || m.scheme == schemeStatic {
		if strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f }) {
			return verificationKey{}, errors.New("the secret has a control character: no header " +
				"can hold it")
		}
	}
	var raw []byte
	var err error
	switch m.spec.KeyFormat {
	case "base64":
		if raw, err = base64.StdEncoding.DecodeString(text); err != nil {
			return verificationKey{}, errors.New(what + " must be base64")
		}
	case "hex":
		if raw, err = hex.DecodeString(text); err != nil {
			return verificationKey{}, errors.New(what + " must be hex")
		}
	case "whsec":
		// Supabase shows a secret as v1,whsec_…, with two prefixes.
		encoded := strings.TrimPrefix(strings.TrimPrefix(text, "v1,"), "whsec_")
		if raw, err = base64.StdEncoding.DecodeString(encoded); err != nil {
			return verificationKey{}, errors.New("the secret must be whsec_ and base64, or base64")
		}
	case "whpk":
		if raw, err = base64.StdEncoding.DecodeString(strings.TrimPrefix(text,
			publicKeyPrefix)); err != nil {
			return verificationKey{}, errors.New("the public key must be whpk_ and base64")
		}
	case "spki":
		return parseSPKI(text)
	default:
		raw = []byte(text)
	}
	if len(raw) == 0 {
		return verificationKey{}, errors.New(what + " is empty")
	}
	if m.scheme == schemeEd25519 && len(raw) != ed25519.PublicKeySize {
		return verificationKey{}, errors.New("the public key must have 32 bytes")
	}
	return verificationKey{bytes: raw}, nil
}

var errInvalidPublicKey = errors.New("the public key must be ECDSA P-256, in base64 or PEM")

func parseSPKI(text string) (verificationKey, error) {
	var der []byte
	if block, _ := pem.Decode([]byte(text)); block != nil {
		der = block.Bytes
	} else if raw, err := base64.StdEncoding.DecodeString(text); err == nil {
		der = raw
	}
	parsed, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return verificationKey{}, errInvalidPublicKey
	}
	public, ok := parsed.(*ecdsa.PublicKey)
	if !ok || public.Curve != elliptic.P256() {
		return verificationKey{}, errInvalidPublicKey
	}
	return verificationKey{ecdsaKey: public}, nil
}
