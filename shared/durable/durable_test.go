package durable_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hookstart/hookstart/shared/durable"
)

// MkdirAll and WriteFile create the expected folders and files. Whether these survive a power cut
// is tested in deploy/powercut.
func TestFoldersAndFiles(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "a", "b", "c")
	for range 2 { // the second time, everything already exists
		if err := durable.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(folder, "file")
	for _, text := range []string{"old", "new"} {
		if err := durable.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("the file is %q, %v; want %q", got, err, text)
		}
	}
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder holds %v, %v; want the file alone", entries, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
	if err := durable.MkdirAll(filepath.Join(path, "below"), 0o700); err == nil {
		t.Error("a folder was made below a file")
	}
}
