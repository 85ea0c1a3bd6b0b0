//go:build linux

package disk_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hookstart/hookstart/deploy/powercut/internal/disk"
)

// TestWhatIsLeft performs typical file operations of programs that store data, and cuts the power
// so that only synced data remains. It then checks which files exist. The fields strict and ordered
// of a test case list the files expected with ModelStrict and with ModelOrdered.
func TestWhatIsLeft(t *testing.T) {
	tests := []struct {
		name            string
		do              func(t *testing.T, dir string)
		strict, ordered []string
	}{
		{"nothing synced", func(t *testing.T, dir string) {
			write(t, dir+"/a", "text", false)
		}, nil, nil},
		{"a file synced", func(t *testing.T, dir string) {
			write(t, dir+"/a", "text", true)
		}, nil, []string{"a=text"}},
		{"a folder synced", func(t *testing.T, dir string) {
			write(t, dir+"/a", "text", false)
			syncPath(t, dir)
		}, []string{"a="}, []string{"a="}},
		{"both synced, then more", func(t *testing.T, dir string) {
			write(t, dir+"/a", "text", true)
			syncPath(t, dir)
			write(t, dir+"/a", "text, and more", false)
			write(t, dir+"/b", "more", false)
		}, []string{"a=text"}, []string{"a=text"}},
		{"a file replaced", func(t *testing.T, dir string) {
			write(t, dir+"/a", "old", true)
			syncPath(t, dir)
			write(t, dir+"/b", "new", true)
			if err := os.Rename(dir+"/b", dir+"/a"); err != nil {
				t.Fatal(err)
			}
		}, []string{"a=old"}, []string{"a=old", "b=new"}},
		{"a file replaced and its folder synced", func(t *testing.T, dir string) {
			write(t, dir+"/a", "old", true)
			write(t, dir+"/b", "new", true)
			if err := os.Rename(dir+"/b", dir+"/a"); err != nil {
				t.Fatal(err)
			}
			syncPath(t, dir)
		}, []string{"a=new"}, []string{"a=new"}},
		{"a file removed", func(t *testing.T, dir string) {
			write(t, dir+"/a", "text", true)
			syncPath(t, dir)
			if err := os.Remove(dir + "/a"); err != nil {
				t.Fatal(err)
			}
		}, []string{"a=text"}, []string{"a=text"}},
		{"a file cut short and made long again", func(t *testing.T, dir string) {
			write(t, dir+"/a", "a text that is longer", true)
			if err := os.Truncate(dir+"/a", 2); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(dir+"/a", 4); err != nil {
				t.Fatal(err)
			}
			syncPath(t, dir+"/a")
			syncPath(t, dir)
		}, []string{"a=a \x00\x00"}, []string{"a=a \x00\x00"}},
		{"O_SYNC, over a border of pages", func(t *testing.T, dir string) {
			f, err := os.OpenFile(dir+"/a", os.O_CREATE|os.O_WRONLY|os.O_SYNC, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteString(strings.Repeat("x", 10_000)); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			syncPath(t, dir)
		}, []string{"a=" + strings.Repeat("x", 10_000)}, []string{
			"a=" + strings.Repeat("x", 10_000),
		}},
	}
	if err := disk.CheckMountable(t.TempDir()); err != nil {
		t.Skip(err)
	}
	for _, test := range tests {
		for model, want := range map[disk.Model][]string{
			disk.ModelStrict:  test.strict,
			disk.ModelOrdered: test.ordered,
		} {
			t.Run(test.name+" "+string(model), func(t *testing.T) {
				d := disk.New(model)
				mounted(t, d, func(dir string) {
					test.do(t, dir)
					d.CutPower(func() {})
				})
				d.PowerOn(disk.LoseAllUnsynced)
				mounted(t, d, func(dir string) {
					if got := files(t, dir); !slices.Equal(got, want) {
						t.Errorf("left: %q; want %q", got, want)
					}
				})
			})
		}
	}
}

func mounted(t *testing.T, d *disk.Disk, use func(dir string)) {
	t.Helper()
	dir := t.TempDir()
	m, err := d.Mount(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.Unmount(); err != nil {
			t.Error(err)
		}
	}()
	use(dir)
}

func write(t *testing.T, path, text string, synced bool) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if synced {
		syncPath(t, path)
	}
}

func syncPath(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// files returns the names and contents of the files in a folder, each as name=content.
func files(t *testing.T, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, entry.Name()+"="+string(text))
	}
	return list
}
