package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/hookstart/hookstart/shared/execution"
)

// validateJSON returns an error with the line and column of the first syntax error, or nil if text
// is valid JSON. name is the name of the flag that holds the text; the error contains it. hint is
// the hint that is printed with the error.
func validateJSON(name string, text []byte, hint string) error {
	if execution.ValidJSON(text) {
		return nil
	}
	at, reason := firstJSONError(text)
	line := 1 + bytes.Count(text[:at], []byte("\n"))
	column := 1 + utf8.RuneCount(text[bytes.LastIndexByte(text[:at], '\n')+1:at])
	return &usageError{
		fmt.Sprintf("%s is not valid JSON: line %d, column %d: %s", name, line, column, reason),
		hint,
	}
}

// firstJSONError returns the byte offset of the first error in text, and a description of the
// error. text must not be valid JSON.
func firstJSONError(text []byte) (offset int, reason string) {
	for offset < len(text) {
		r, size := utf8.DecodeRune(text[offset:])
		if r == utf8.RuneError && size == 1 {
			return offset, "this is not UTF-8"
		}
		offset += size
	}
	var value json.RawMessage
	syntax, ok := errors.AsType[*json.SyntaxError](json.Unmarshal(text, &value))
	switch end := len(bytes.TrimRight(text, " \t\r\n")); {
	case !ok: // impossible unless ValidJSON and encoding/json disagree
		return 0, "it cannot be read"
	case syntax.Offset >= int64(len(text)) && syntax.Error() == "unexpected end of JSON input":
		return end, "it ends too early"
	default:
		return int(syntax.Offset) - 1, syntax.Error() // Offset points to the byte after the error
	}
}
