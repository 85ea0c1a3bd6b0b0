package cli

import (
	"fmt"
	"io"
	"os"
)

// readInputFile reads the file at a path, or stdin if the path is "-". flag is the name of the flag
// that holds the path; errors contain it.
func (s *session) readInputFile(flag, path string) ([]byte, error) {
	if path != "-" {
		text, err := os.ReadFile(path) //nolint:gosec // the operator names a file of their own
		if err != nil {
			return nil, &hintError{fmt.Errorf("%s: %w", flag, err), flag + " - reads stdin"}
		}
		return text, nil
	}
	text, err := io.ReadAll(s.In)
	if err != nil {
		return nil, &hintError{fmt.Errorf("%s -: %w", flag, err), "pipe the file into it"}
	}
	return text, nil
}
