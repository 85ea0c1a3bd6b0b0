// Package terminal shows the progress of a command-line tool. On a terminal, it keeps rewriting one
// line; to a file or a pipe, it writes separate lines.
package terminal

import (
	"fmt"
	"io"
	"os"
)

// IsTerminal reports whether out is a terminal.
func IsTerminal(out io.Writer) bool {
	file, isFile := out.(*os.File)
	if !isFile {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// ProgressLine is a line that shows progress. Its methods must not be called concurrently.
type ProgressLine struct {
	out      io.Writer
	rewrites bool
	open     bool // whether the current line has no line break yet
}

// NewProgressLine returns a ProgressLine that writes to out.
func NewProgressLine(out io.Writer) *ProgressLine {
	return &ProgressLine{out: out, rewrites: IsTerminal(out)}
}

// Rewrites reports whether Show replaces the previous text on the same line, so that it may be
// called often.
func (l *ProgressLine) Rewrites() bool { return l.rewrites }

// Show prints a text, formatted as by fmt.Sprintf. If Rewrites reports true, the text replaces the
// previous one on the same line. Otherwise, it goes on a new line.
func (l *ProgressLine) Show(format string, args ...any) {
	before, after := "", "\n"
	if l.rewrites {
		before, after = "\r\033[K", ""
	}
	_, _ = fmt.Fprintf(l.out, before+format+after, args...)
	l.open = l.rewrites
}

// Done ends the current line, so that its text stays and later output begins on a new line.
func (l *ProgressLine) Done() {
	if l.open {
		_, _ = fmt.Fprintln(l.out)
		l.open = false
	}
}
