package store

import (
	"bytes"
	"encoding/hex"
)

// UUID is an execution ID as it is stored: 16 bytes, which sort in the same order as the text form.
type UUID [16]byte

// idLength is the length of a UUID as text, with hyphens.
const idLength = 36

// ParseUUID converts an execution ID to its stored form. ok is false if the text is not a UUID in
// lower case. Every execution ID in the streams is such a UUID.
func ParseUUID(id string) (key UUID, ok bool) {
	if len(id) != idLength || id[8] != '-' || id[13] != '-' || id[18] != '-' || id[23] != '-' {
		return UUID{}, false
	}
	at := 0
	for i := 0; i < idLength; i += 2 {
		if id[i] == '-' {
			i++
		}
		high, low := nibble(id[i]), nibble(id[i+1])
		if high > 15 || low > 15 {
			return UUID{}, false
		}
		key[at] = high<<4 | low
		at++
	}
	return key, true
}

func nibble(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	}
	return 255
}

// String returns the ID as text.
func (k UUID) String() string {
	var id [idLength]byte
	hex.Encode(id[0:8], k[0:4])
	hex.Encode(id[9:13], k[4:6])
	hex.Encode(id[14:18], k[6:8])
	hex.Encode(id[19:23], k[8:10])
	hex.Encode(id[24:36], k[10:16])
	id[8], id[13], id[18], id[23] = '-', '-', '-', '-'
	return string(id[:])
}

// EncodeID returns the stored form of an ID: the 16 bytes of a UUID, or the sanitized text of any
// other ID. If such a text has 16 bytes, EncodeID appends a zero byte, so that it cannot be
// confused with a UUID. DecodeID removes that byte again, because no sanitized text ends in a zero
// byte.
func EncodeID(id string) []byte {
	if key, isID := ParseUUID(id); isID {
		return key[:]
	}
	key := []byte(SanitizeText(id))
	if len(key) == len(UUID{}) {
		key = append(key, 0)
	}
	return key
}

// DecodeID is the inverse of EncodeID: it returns the ID for the stored bytes.
func DecodeID(key []byte) string {
	if len(key) == len(UUID{}) {
		return UUID(key).String()
	}
	return string(bytes.TrimSuffix(key, []byte{0}))
}
