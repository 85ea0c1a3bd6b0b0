package store

import (
	"encoding/hex"
	"fmt"
)

// Key is an execution ID as it is stored: the 16 bytes of the UUID. Keys sort as IDs do.
type Key [16]byte

// idLength is that of a UUID as text.
const idLength = 36

// KeyOf is the key of an ID, and false for a text that is not a UUID in lower case, as no ID on the stream is.
func KeyOf(id string) (key Key, isID bool) {
	if len(id) != idLength || id[8] != '-' || id[13] != '-' || id[18] != '-' || id[23] != '-' {
		return Key{}, false
	}
	at := 0
	for i := 0; i < idLength; i += 2 {
		if id[i] == '-' {
			i++
		}
		high, low := nibble(id[i]), nibble(id[i+1])
		if high > 15 || low > 15 {
			return Key{}, false
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

// String is the ID.
func (k Key) String() string {
	var id [idLength]byte
	hex.Encode(id[0:8], k[0:4])
	hex.Encode(id[9:13], k[4:6])
	hex.Encode(id[14:18], k[6:8])
	hex.Encode(id[19:23], k[8:10])
	hex.Encode(id[24:36], k[10:16])
	id[8], id[13], id[18], id[23] = '-', '-', '-', '-'
	return string(id[:])
}

// CheckIDs is a DataError for the first new record whose ID is not a UUID in lower case.
func (b Batch) CheckIDs() error {
	for _, r := range b.New {
		if _, isID := KeyOf(r.ID); !isID {
			return &DataError{fmt.Errorf("%.80q is not an execution ID", r.ID)}
		}
	}
	return nil
}
