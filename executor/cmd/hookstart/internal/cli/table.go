package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
)

// printRows prints a table with aligned columns. It replaces control characters in the cells,
// because cells may contain text from strangers.
func (s *session) printRows(table [][]string) error {
	aligned := tabwriter.NewWriter(s.Out, 0, 0, 2, ' ', 0)
	for _, cells := range table {
		for i := range cells {
			cells[i] = sanitizeLine(cells[i])
		}
		if _, err := fmt.Fprintln(aligned, strings.Join(cells, "\t")); err != nil {
			return err
		}
	}
	return aligned.Flush()
}

// printLine prints one line. It replaces control characters (see sanitizeLine), because the
// arguments may contain text from strangers.
func (s *session) printLine(format string, args ...any) error {
	_, err := fmt.Fprintln(s.Out, sanitizeLine(fmt.Sprintf(format, args...)))
	return err
}

// printRaw prints text unchanged, and adds a line break if text does not end with one. It prints
// nothing if text is empty.
func (s *session) printRaw(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	_, err := fmt.Fprintln(s.Out, strings.TrimSuffix(string(text), "\n"))
	return err
}

// printResponse prints the body of the API's last response if -o json is set. Otherwise it
// calls printText.
func (s *session) printResponse(printText func() error) error {
	if s.jsonOutput {
		return s.printRaw(s.lastResponseBody)
	}
	return printText()
}

// printResultLine prints the result of a verb: the API's last response if -o json is set, otherwise
// a single line. If err is not nil, it prints nothing and returns err.
func (s *session) printResultLine(err error, format string, args ...any) error {
	if err != nil {
		return err
	}
	return s.printResponse(func() error { return s.printLine(format, args...) })
}

// printValue prints a value that is not a response of the API: as JSON if -o json is set, otherwise
// by calling printText.
func (s *session) printValue(value any, printText func() error) error {
	if !s.jsonOutput {
		return printText()
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode the output: %w", err)
	}
	return s.printRaw(text)
}

// printNote prints text to stderr, separately from the output that scripts read.
func (s *session) printNote(format string, args ...any) {
	// Ignore an error: it does not affect the output itself.
	_, _ = fmt.Fprintln(s.Err, sanitizeLine(fmt.Sprintf(format, args...)))
}
