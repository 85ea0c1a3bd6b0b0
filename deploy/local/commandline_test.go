package local

import (
	"os"
	"path/filepath"
	"testing"
)

// The printed command runs the program hookstart next to hookstart-local, no matter in which folder
// the user has installed both.
func TestCommandLineCanBeTyped(t *testing.T) {
	root := t.TempDir()
	for _, folder := range []string{"archive/bin", "own bin", "links", "empty"} {
		if err := os.MkdirAll(filepath.Join(root, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"archive/bin/hookstart", "own bin/hookstart"} {
		if err := os.WriteFile(filepath.Join(root, file), nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../archive/bin/hookstart",
		filepath.Join(root, "links/hookstart")); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ path, executable, folder, want string }{
		"in a folder below": {"empty", "archive/bin", "archive", "bin/hookstart"},
		"in this folder":    {"empty", "archive/bin", "archive/bin", "./hookstart"},
		"elsewhere": {
			"empty", "archive/bin", "empty", root + "/archive/bin/hookstart",
		},
		"in a folder with a space": {"empty", "own bin", "", "'own bin/hookstart'"},
		"on the PATH":              {"archive/bin", "archive/bin", "archive", "hookstart"},
		"by a link on the PATH":    {"links", "archive/bin", "empty", "hookstart"},
		"another on the PATH":      {"own bin", "archive/bin", "archive", "bin/hookstart"},
		"in an image":              {"archive/bin", "empty", "", "hookstart"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("PATH", filepath.Join(root, c.path))
			if got := hookstartShellCommand(filepath.Join(root, c.executable, "hookstart-local"),
				filepath.Join(root, c.folder)); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}
