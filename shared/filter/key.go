package filter

import (
	"crypto/sha256"
	"encoding/hex"
	"unicode/utf8"

	"github.com/hookstart/hookstart/shared/sender"
)

const (
	// MaxOrderKeyBytes is the maximum length in bytes of a key that is used unchanged. A longer key
	// is replaced by its hash.
	MaxOrderKeyBytes = 255
	// hashedKeyPrefix is the prefix of a key that has been replaced by its hash.
	hashedKeyPrefix = "sha256:"
)

// OrderKeyPlace is a compiled place: the header, field or JSON pointer that contains the order key
// of a request. It is immutable and safe for concurrent use.
type OrderKeyPlace struct {
	text     string
	place    sender.RequestPlace
	pointers *pointerSet // nil means that the place is not a JSON pointer
}

// ParseOrderKeyPlace compiles the place of an order key, such as header:X-Order or ptr:/order/id.
// Any error is an *Error.
func ParseOrderKeyPlace(text string) (*OrderKeyPlace, error) {
	if len(text) > MaxBytes || !utf8.ValidString(text) {
		return nil, &Error{Detail: "is longer than 16 KiB, or is not UTF-8"}
	}
	place, err := sender.ParseRequestPlace(text)
	if err != nil {
		return nil, &Error{Detail: err.Error()}
	}
	k := &OrderKeyPlace{text: text, place: place}
	if path := place.JSONPointer(); path != nil {
		k.pointers = newPointerSet([][]string{path})
	}
	return k, nil
}

// String returns the place as it was passed to ParseOrderKeyPlace.
func (k *OrderKeyPlace) String() string { return k.text }

// Header returns the canonical name of the header that contains the order key, or "" if another
// part of a request contains it.
func (k *OrderKeyPlace) Header() string { return k.place.HeaderName() }

// Key returns the order key of a request: the text of a string, or a number or a boolean as
// written. It returns "" if the request has no key, because there is nothing at the place, or
// because the value is an empty string, null, an object or an array. A key that is too long or not
// UTF-8 is replaced by its hash.
func (k *OrderKeyPlace) Key(r *sender.Request) string {
	var key string
	if k.pointers == nil {
		key, _ = k.place.Text(r)
	} else {
		var room [1]value
		v := k.pointers.resolve(room[:0], r.JSONDocument())[0]
		switch v.kind {
		case kindText:
			key, _ = v.asText()
		case kindNumber, kindBool:
			key = string(v.json)
		case kindAbsent, kindNull, kindOther: // no key
		}
	}
	if len(key) > MaxOrderKeyBytes || !utf8.ValidString(key) {
		sum := sha256.Sum256([]byte(key))
		return hashedKeyPrefix + hex.EncodeToString(sum[:])
	}
	return key
}
