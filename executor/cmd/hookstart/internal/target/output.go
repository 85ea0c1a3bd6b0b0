// Package target provides the handlers of "hookstart run", which run a program for each execution
// or send each execution to a URL.
package target

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/hookstart/hookstart/shared/runner"
)

// maxQuotedBytes is the maximum number of bytes quoted from stderr or from a response. The report
// of a failure must not exceed 4,000 bytes.
const maxQuotedBytes = 3500

// parseOutput converts the text that a target wrote to the execution's output. If text is a single
// JSON value in UTF-8, the output is that value. For any other text, the output is {"text": …},
// with text encoded in base64 if it is not UTF-8. If text is blank, parseOutput returns nil: the
// execution has no output.
func parseOutput(text []byte) any {
	switch {
	case len(bytes.TrimSpace(text)) == 0:
		return nil
	case !utf8.Valid(text):
		return map[string]string{
			"text":         base64.StdEncoding.EncodeToString(text),
			"textEncoding": "base64",
		}
	case json.Valid(text):
		return json.RawMessage(text)
	default:
		return map[string]string{"text": string(text)}
	}
}

// outputTooLongError returns the error for an output that is longer than maxBytes bytes. It is
// permanent, because another attempt would have the same output.
func outputTooLongError(maxBytes int64) error {
	return runner.Permanent(fmt.Errorf("the output is longer than %d bytes: store it elsewhere "+
		"and write a reference", maxBytes))
}

// describeWithOutput returns the description of a failure, followed by the target's output if there
// is any.
func describeWithOutput(what, output string) string {
	if output = strings.TrimSpace(output); output == "" {
		return what
	}
	return what + ": " + output
}

// headBuffer keeps the beginning of what is written to it, up to a limit in bytes, and records
// whether it has dropped the rest.
type headBuffer struct {
	kept      bytes.Buffer
	maxBytes  int64
	truncated bool
}

func (h *headBuffer) Write(p []byte) (int, error) {
	room := h.maxBytes - int64(h.kept.Len())
	if int64(len(p)) > room {
		h.truncated = true
		h.kept.Write(p[:max(room, 0)])
		return len(p), nil
	}
	return h.kept.Write(p)
}

// tailBuffer keeps the last maxQuotedBytes bytes written to it, because the end of stderr is most
// likely to say why a program failed.
type tailBuffer struct {
	kept      []byte
	truncated bool
}

func (t *tailBuffer) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - maxQuotedBytes; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
		t.truncated = true
	}
	return len(p), nil
}

// String returns the kept bytes as text. If the beginning was cut off, the text starts with an
// ellipsis, followed by a whole character.
func (t *tailBuffer) String() string {
	text := t.kept
	if !t.truncated {
		return string(text)
	}
	for len(text) > 0 && !utf8.RuneStart(text[0]) {
		text = text[1:]
	}
	return "… " + string(text)
}
