package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// If a program does not exist, and there is no shell either, as in hookstart's own image, the error
// suggests --http. If there is a shell, the error suggests giving the program's path.
func TestMissingProgramInAnImageWithoutShell(t *testing.T) {
	folder := t.TempDir()
	shell := filepath.Join(folder, "sh")
	for _, name := range []string{"no-such-program", "/no/such/program"} {
		_, err := findProgram(name, shell)
		usage, ok := errors.AsType[*usageError](err)
		if !ok || !strings.Contains(usage.text, "there is no program "+name) ||
			!strings.Contains(usage.hint, "--http") {
			t.Errorf("without a shell: %v %+v", err, usage)
		}
	}
	if err := os.WriteFile(shell, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := findProgram("no-such-program", shell)
	if usage, ok := errors.AsType[*usageError](err); !ok || usage.hint != "name its path" {
		t.Errorf("with a shell: %v %+v", err, usage)
	}
}
