package execution

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// ValidJSON reports whether text is one JSON text according to RFC 8259: any value, surrounded by
// optional white space, in UTF-8, without a byte order mark. Unlike encoding/json, it accepts any
// nesting depth and refuses invalid UTF-8. Instead of recursing, it keeps one bit for each open
// bracket. The code is one long loop because it was slower when split into functions. In
// BenchmarkValidJSON, it takes a third of the time of json.Valid and utf8.Valid together.
func ValidJSON(text []byte) bool {
	var room [4]uint64 // enough for 256 open brackets, without an allocation
	s := bracketStack{objectBits: room[:0]}
	i := skipSpace(text, 0)
	for {
		// A value begins here.
		if i >= len(text) {
			return false
		}
		switch text[i] {
		case '{':
			i = skipSpace(text, i+1)
			if i < len(text) && text[i] == '}' {
				i++
				break
			}
			s = s.push(true)
			if i = scanMemberName(text, i); i < 0 {
				return false
			}
			continue
		case '[':
			i = skipSpace(text, i+1)
			if i < len(text) && text[i] == ']' {
				i++
				break
			}
			s = s.push(false)
			continue
		case '"':
			i = scanString(text, i)
		case 't':
			i = scanLiteral(text, i, "true")
		case 'f':
			i = scanLiteral(text, i, "false")
		case 'n':
			i = scanLiteral(text, i, "null")
		default:
			i = scanNumber(text, i)
		}
		if i < 0 {
			return false
		}

		// A value has ended. Scan what follows: closing brackets, which also end the values around
		// it, or a comma and the beginning of the next value.
	after:
		for {
			i = skipSpace(text, i)
			if s.depth == 0 {
				return i == len(text)
			}
			if i >= len(text) {
				return false
			}
			switch c := text[i]; {
			case c == ',':
				i = skipSpace(text, i+1)
				if s.inObject() {
					if i = scanMemberName(text, i); i < 0 {
						return false
					}
				}
				break after
			case c == '}' && s.inObject(), c == ']' && !s.inObject():
				s.depth--
				i++
			default:
				return false
			}
		}
	}
}

// bracketStack records the open brackets around the current position, in one bit each: 1 means {
// and 0 means [.
type bracketStack struct {
	depth      int
	objectBits []uint64 // one bit per open bracket: 1 means {, 0 means [
}

// push returns the stack with one more open bracket, which is { if object is true, and [ otherwise.
func (s bracketStack) push(object bool) bracketStack {
	word, bit := s.depth/64, uint(s.depth)%64
	if word == len(s.objectBits) {
		s.objectBits = append(s.objectBits, 0)
	}
	if object {
		s.objectBits[word] |= 1 << bit
	} else {
		s.objectBits[word] &^= 1 << bit
	}
	s.depth++
	return s
}

// inObject reports whether the innermost open bracket is {.
func (s *bracketStack) inObject() bool {
	d := s.depth - 1
	return s.objectBits[d/64]>>(uint(d)%64)&1 == 1
}

func skipSpace(text []byte, i int) int {
	for i < len(text) {
		switch text[i] {
		case ' ', '\t', '\n', '\r':
			i++
		default:
			return i
		}
	}
	return i
}

// scanMemberName scans the name of an object's member at index i, the colon and any white space. It
// returns the index of the member's value, or -1 if there is no valid name with a colon.
func scanMemberName(text []byte, i int) int {
	if i >= len(text) || text[i] != '"' {
		return -1
	}
	if i = scanString(text, i); i < 0 {
		return -1
	}
	i = skipSpace(text, i)
	if i >= len(text) || text[i] != ':' {
		return -1
	}
	return skipSpace(text, i+1)
}

// scanString scans the string that begins at i and returns the index after it, or -1 if it is
// invalid. Like the grammar of RFC 8259, it accepts a lone surrogate if it is escaped, as in
// \ud800.
func scanString(text []byte, i int) int {
	for i++; i < len(text); {
		if i = skipPlainCharacters(text, i); i == len(text) {
			break
		}
		switch c := text[i]; {
		case c == '"':
			return i + 1
		case c == '\\':
			if i+1 >= len(text) {
				return -1
			}
			switch text[i+1] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
				i += 2
			case 'u':
				if len(text)-i < 6 || !isHexDigits(text[i+2:i+6]) {
					return -1
				}
				i += 6
			default:
				return -1
			}
		case c < ' ':
			return -1
		case c < utf8.RuneSelf:
			i++
		default:
			r, size := utf8.DecodeRune(text[i:])
			if r == utf8.RuneError && size == 1 {
				return -1
			}
			i += size
		}
	}
	return -1
}

// skipPlainCharacters skips characters of a string that need no check, eight bytes at a time, and
// returns the index after them. Up to seven more such characters may follow, which the caller must
// check one by one. This reduces the time of BenchmarkValidJSON to two thirds, and to one sixth for
// a body that is one long string.
func skipPlainCharacters(text []byte, i int) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for ; i+8 <= len(text); i += 8 {
		word := binary.LittleEndian.Uint64(text[i:])
		// In special, the high bit of a byte is 1 if the byte needs a check: it is not ASCII, is
		// less than a space, or is a quote or a backslash. A subtraction's borrow can change only
		// bytes after the first such byte, so the first one found is correct.
		special := (word | (word - ' '*ones) | ((word ^ '"'*ones) - ones) |
			((word ^ '\\'*ones) - ones)) & highs
		if special != 0 {
			return i + bits.TrailingZeros64(special)/8
		}
	}
	return i
}

func isHexDigits(text []byte) bool {
	for _, c := range text {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
			return false
		}
	}
	return true
}

func scanLiteral(text []byte, i int, word string) int {
	if len(text)-i < len(word) || string(text[i:i+len(word)]) != word {
		return -1
	}
	return i + len(word)
}

func scanNumber(text []byte, i int) int {
	if i < len(text) && text[i] == '-' {
		i++
	}
	switch {
	case i < len(text) && text[i] == '0':
		i++
	default:
		if i = scanDigits(text, i); i < 0 {
			return -1
		}
	}
	if i < len(text) && text[i] == '.' {
		if i = scanDigits(text, i+1); i < 0 {
			return -1
		}
	}
	if i < len(text) && (text[i] == 'e' || text[i] == 'E') {
		i++
		if i < len(text) && (text[i] == '+' || text[i] == '-') {
			i++
		}
		return scanDigits(text, i)
	}
	return i
}

// scanDigits scans at least one digit and returns the index after the digits, or -1 if there is
// none.
func scanDigits(text []byte, i int) int {
	start := i
	for i < len(text) && text[i] >= '0' && text[i] <= '9' {
		i++
	}
	if i == start {
		return -1
	}
	return i
}
