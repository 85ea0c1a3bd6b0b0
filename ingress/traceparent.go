package ingress

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"strings"
)

// newTraceparent returns a W3C traceparent with a new span ID for this request. The trace ID is
// that of the sender's traceparent, or a new one if the sender sent no valid traceparent.
func newTraceparent(header http.Header) string {
	var ids [24]byte
	//nolint:gosec // IDs, no secrets; |1: never zero
	binary.NativeEndian.PutUint64(ids[0:], rand.Uint64()|1)
	binary.NativeEndian.PutUint64(ids[8:], rand.Uint64())    //nolint:gosec // as above
	binary.NativeEndian.PutUint64(ids[16:], rand.Uint64()|1) //nolint:gosec // as above
	var text [55]byte
	copy(text[:], "00-")
	hex.Encode(text[3:35], ids[:16])
	copy(text[35:], "-")
	hex.Encode(text[36:52], ids[16:])
	copy(text[52:], "-00")
	if given := header["Traceparent"]; len(given) == 1 && isValidTraceparent(given[0]) {
		copy(text[3:35], given[0][3:35])
		copy(text[53:], given[0][53:55])
	}
	return string(text[:])
}

// isValidTraceparent reports whether s is a valid W3C traceparent of version 00 or of a later
// version. Later versions begin with the same fields as version 00.
func isValidTraceparent(s string) bool {
	if len(s) < 55 || (len(s) > 55 && (s[:2] == "00" || s[55] != '-')) || s[:2] == "ff" {
		return false
	}
	for i := range 55 {
		c := s[i]
		if i == 2 || i == 35 || i == 52 {
			if c != '-' {
				return false
			}
		} else if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return strings.Trim(s[3:35], "0") != "" && strings.Trim(s[36:52], "0") != ""
}
