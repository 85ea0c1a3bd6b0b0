// Package seal encrypts secrets at rest, using AES-256-GCM and keys from a file. A sealed secret is
// called a box. A box is bound to its record, so somebody who can write records still cannot move a
// secret from one record to another.
package seal

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// ErrNoKey means that a key is missing: either there is no key to seal with, or the file does not
// contain the key with which a box was sealed.
var ErrNoKey = errors.New("the key is missing")

// MissingKeyError names the missing key with which a box was sealed. errors.Is(err, ErrNoKey)
// returns true for it.
type MissingKeyError struct{ ID string }

func (e *MissingKeyError) Error() string {
	return fmt.Sprintf("%s: it is sealed with the key %q, which is not in --secrets-key-file",
		ErrNoKey, e.ID)
}

// Is reports whether target is ErrNoKey.
func (*MissingKeyError) Is(target error) bool { return target == ErrNoKey }

// ErrInvalidBox means that a box cannot be opened although its key is present: the box is damaged,
// or it belongs to another record.
var ErrInvalidBox = errors.New(
	"the sealed secret cannot be decrypted: it is damaged, or belongs to " +
		"another record",
)

// Keys seals and opens secrets. It is immutable and safe for concurrent use. A nil *Keys contains
// no keys.
type Keys struct {
	sealingKeyID string // the ID of the key that is used for sealing
	byID         map[string]cipher.AEAD
}

// keySize is the size of a key in bytes.
const keySize = 32

// boxVersion is the first byte of every box.
const boxVersion = 1

var keyIDPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// NewKeyLine returns a new random key as a line of a key file, without the newline.
func NewKeyLine() string {
	var key [keySize]byte
	_, _ = rand.Read(key[:]) // never fails, as crypto/rand documents
	return "k" + strings.ToLower(rand.Text()[:8]) + ":" + base64.StdEncoding.EncodeToString(key[:])
}

// ReadKeyFile reads a key file, whose lines have the form id:base64(32 bytes). The first key is
// used for sealing. Boxes that were sealed with any of the keys can be opened. Empty lines and
// lines that begin with # are ignored. If path is "", ReadKeyFile returns nil, which means no keys.
// Error messages never contain a key.
func ReadKeyFile(path string) (*Keys, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // the nil Keys are of use
	}
	file, err := os.ReadFile(path) //nolint:gosec // the operator's own file
	if err != nil {
		return nil, fmt.Errorf("--secrets-key-file: %w", err)
	}
	keys, err := parseKeyFile(file)
	if err != nil {
		return nil,
			fmt.Errorf("--secrets-key-file %s: %w; hookstart admin secrets-key makes a line", path,
				err)
	}
	return keys, nil
}

func parseKeyFile(file []byte) (*Keys, error) {
	keys := &Keys{byID: map[string]cipher.AEAD{}}
	number := 0
	for text := range bytes.Lines(file) {
		number++
		line := strings.TrimSpace(string(text))
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		id, encoded, _ := strings.Cut(line, ":")
		key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(encoded))
		switch {
		case !keyIDPattern.MatchString(id) || err != nil || len(key) != keySize:
			return nil, fmt.Errorf("line %d is not id:base64 of %d bytes", number, keySize)
		case keys.byID[id] != nil:
			return nil, fmt.Errorf("line %d has the ID of an earlier one", number)
		}
		if keys.byID[id], err = newAEAD(key); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if keys.sealingKeyID == "" {
			keys.sealingKeyID = id
		}
	}
	if keys.sealingKeyID == "" {
		return nil, errors.New("the file has no key: add a line of id:base64(32 bytes)")
	}
	return keys, nil
}

func newAEAD(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// CanSeal reports whether there is a key to seal with. It returns false if k is nil.
func (k *Keys) CanSeal() bool { return k != nil }

// IDs returns the IDs of all keys, sorted.
func (k *Keys) IDs() []string {
	if k == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(k.byID))
}

// KeyID returns the ID of the key that a box is sealed with, or "" if this version does not know
// the format of the box.
func KeyID(box []byte) string {
	id, _, err := parseBoxHeader(box)
	if err != nil {
		return ""
	}
	return id
}

// Seal encrypts a secret and returns the box. purpose names the record that the box is bound to. If
// there is no key to seal with, the error wraps ErrNoKey.
func (k *Keys) Seal(secret []byte, purpose string) ([]byte, error) {
	if k == nil {
		return nil, fmt.Errorf("seal a secret: %w: there is no --secrets-key-file", ErrNoKey)
	}
	//nolint:gosec // the length was checked when the key was read
	head := append([]byte{boxVersion, byte(len(k.sealingKeyID))}, k.sealingKeyID...)
	//nolint:gosec // it makes its own random nonce
	return k.byID[k.sealingKeyID].Seal(head, nil, secret, additionalData(head, purpose)), nil
}

// Open returns the secret in a box. purpose must be the same as when the box was sealed. Errors
// wrap ErrNoKey or ErrInvalidBox.
func (k *Keys) Open(box []byte, purpose string) ([]byte, error) {
	id, head, err := parseBoxHeader(box)
	if err != nil {
		return nil, err
	}
	if k == nil || k.byID[id] == nil {
		return nil, &MissingKeyError{id}
	}
	secret, err := k.byID[id].Open(nil, nil, box[len(head):], additionalData(head, purpose))
	if err != nil {
		return nil,
			fmt.Errorf("%w: it is damaged, of another record, or of another key with the ID %q",
				ErrInvalidBox, id)
	}
	return secret, nil
}

// IsSealedWithCurrentKey reports whether a box is sealed with the key that is now used for sealing.
func (k *Keys) IsSealedWithCurrentKey(box []byte) bool {
	id, _, err := parseBoxHeader(box)
	return err == nil && k != nil && id == k.sealingKeyID
}

// parseBoxHeader returns the ID of the key that a box is sealed with, and the box's head: its
// version and the ID. It fails with ErrInvalidBox if this version does not know the format.
func parseBoxHeader(box []byte) (id string, head []byte, err error) {
	if len(box) < 2 || box[0] != boxVersion || len(box) < 2+int(box[1]) {
		return "", nil, fmt.Errorf("%w: it has a form that this version does not know",
			ErrInvalidBox)
	}
	head = box[:2+int(box[1])]
	return string(head[2:]), head, nil
}

// additionalData returns the additional authenticated data of a box. It makes Open fail if the head
// of the box was changed or the box was moved to another record.
func additionalData(head []byte, purpose string) []byte {
	return append(bytes.Clone(head), purpose...)
}
