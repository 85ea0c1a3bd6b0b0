// Package terminal shows progress: one line that changes on a terminal, plain lines in a file or a pipe.
package terminal

import (
	"fmt"
	"io"
	"os"
)

// Is says whether somebody watches.
func Is(out io.Writer) bool {
	file, isFile := out.(*os.File)
	if !isFile {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Line is the line that says how far something is. It is used by one goroutine at a time.
type Line struct {
	out     io.Writer
	rewrite bool
	open    bool // there is a line that the next one takes the place of
}

// NewLine writes to out.
func NewLine(out io.Writer) *Line { return &Line{out: out, rewrite: Is(out)} }

// Rewrites says whether a new line takes the place of the last one: then it may come often.
func (l *Line) Rewrites() bool { return l.rewrite }

// Show shows a new line.
func (l *Line) Show(format string, args ...any) {
	before, after := "", "\n"
	if l.rewrite {
		before, after = "\r\033[K", ""
	}
	_, _ = fmt.Fprintf(l.out, before+format+after, args...)
	l.open = l.rewrite
}

// Done leaves the last line as it is: what is written next begins a new one.
func (l *Line) Done() {
	if l.open {
		_, _ = fmt.Fprintln(l.out)
		l.open = false
	}
}
