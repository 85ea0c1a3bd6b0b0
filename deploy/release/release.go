// Package release makes releases of hookstart's modules. In the checkout they require each other at
// v0.0.0 and are found by replace directives, which count for nobody else. A release is a commit
// whose go.mod files require each other at its version, and a tag of it for each module.
package release

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
	"golang.org/x/mod/zip"
)

// Root is the path that the paths of all modules begin with.
const Root = "github.com/hookstart/hookstart"

// Modules are the folders of the modules that are released: those that programs and runners are made
// of. The others are for work on the repository itself.
var Modules = []string{"proto", "shared", "ingress", "executor", "deploy/local"} //nolint:gochecknoglobals // a constant

// CheckVersion says what is wrong with a version.
func CheckVersion(version string) error {
	if semver.Canonical(version) != version || semver.Build(version) != "" {
		return fmt.Errorf("%q is not a version: it has to be like v0.1.0 or v0.1.0-rc.1", version)
	}
	if major := semver.Major(version); major != "v0" && major != "v1" {
		return fmt.Errorf("%s: from v2 on, the paths of the modules must end in /%s", version, major)
	}
	return nil
}

// GoMod is the go.mod file of a module in the release: it requires ours at the version, and replaces
// nothing, so that `go install` takes its programs too.
func GoMod(root, folder, version string) ([]byte, error) {
	name := filepath.Join(root, folder, "go.mod")
	content, err := os.ReadFile(name) //nolint:gosec // in the checkout
	if err != nil {
		return nil, err
	}
	file, err := modfile.Parse(name, content, nil)
	if err != nil {
		return nil, err
	}
	for _, required := range file.Require {
		if ours(required.Mod.Path) {
			if err := file.AddRequire(required.Mod.Path, version); err != nil {
				return nil, err
			}
		}
	}
	for _, replaced := range file.Replace {
		if !ours(replaced.Old.Path) {
			return nil, fmt.Errorf("%s replaces %s, which counts for nobody else", name, replaced.Old.Path)
		}
		if err := file.DropReplace(replaced.Old.Path, replaced.Old.Version); err != nil {
			return nil, err
		}
	}
	file.Cleanup()
	return file.Format()
}

func ours(modulePath string) bool { return strings.HasPrefix(modulePath, Root+"/") }

// Proxy writes the release into a folder as a module proxy has it: with GOPROXY=file://FOLDER the go
// command finds our modules there.
func Proxy(root, version, folder string) error {
	for _, name := range Modules {
		if err := proxyModule(root, name, version, folder); err != nil {
			return fmt.Errorf("module %s: %w", name, err)
		}
	}
	return nil
}

func proxyModule(root, name, version, folder string) (err error) {
	goMod, err := GoMod(root, name, version)
	if err != nil {
		return err
	}
	files, err := filesOf(root, name, goMod)
	if err != nil {
		return err
	}
	at := filepath.Join(folder, filepath.FromSlash(Root), filepath.FromSlash(name), "@v")
	if err := os.MkdirAll(at, 0o755); err != nil { //nolint:gosec // nothing secret
		return err
	}
	for file, content := range map[string]string{
		"list":            version + "\n",
		version + ".info": fmt.Sprintf(`{"Version": %q, "Time": "2000-01-01T00:00:00Z"}`, version),
		version + ".mod":  string(goMod),
	} {
		if err := os.WriteFile(filepath.Join(at, file), []byte(content), 0o600); err != nil {
			return err
		}
	}
	archive, err := os.Create(filepath.Join(at, version+".zip")) //nolint:gosec // the caller's folder
	if err != nil {
		return err
	}
	if err := zip.Create(archive, module.Version{Path: path.Join(Root, name), Version: version}, files); err != nil {
		_ = archive.Close() // the first error counts
		return err
	}
	return archive.Close()
}

// filesOf are the files of a module: those of its folder without the modules beneath it and without
// what npm has put there.
func filesOf(root, name string, goMod []byte) (files []zip.File, err error) {
	base := filepath.Join(root, name)
	err = filepath.WalkDir(base, func(found string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(base, found)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if _, err := os.Stat(filepath.Join(found, "go.mod")); relative != "." && err == nil || entry.Name() == "node_modules" {
				return fs.SkipDir
			}
			return nil
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		file := sourceFile{path: filepath.ToSlash(relative), from: found}
		if file.path == "go.mod" {
			file.content = goMod
		}
		files = append(files, file)
		return nil
	})
	return files, err
}

// sourceFile is a file of a module.
type sourceFile struct {
	path    string // in the module
	from    string // in the checkout
	content []byte // in place of what is there; nil: that
}

func (f sourceFile) Path() string { return f.path }

func (f sourceFile) Lstat() (os.FileInfo, error) {
	info, err := os.Lstat(f.from)
	if err == nil && f.content != nil {
		info = replacedInfo{info, int64(len(f.content))}
	}
	return info, err
}

func (f sourceFile) Open() (io.ReadCloser, error) {
	if f.content != nil {
		return io.NopCloser(strings.NewReader(string(f.content))), nil
	}
	return os.Open(f.from)
}

// replacedInfo is that of a file with other content.
type replacedInfo struct {
	fs.FileInfo
	size int64
}

func (i replacedInfo) Size() int64 { return i.size }

// CheckChangelog says what is missing in CHANGELOG.md for a release: its section, with the date, and
// something in it.
func CheckChangelog(text, version string) error {
	heading := "## [" + strings.TrimPrefix(version, "v") + "] - "
	_, after, found := strings.Cut("\n"+text, "\n"+heading)
	if !found {
		return fmt.Errorf("CHANGELOG.md has no section %q: give Unreleased that heading, and begin a new Unreleased", heading+"YYYY-MM-DD")
	}
	date, section, _ := strings.Cut(after, "\n")
	if _, err := time.Parse(time.DateOnly, strings.TrimSpace(date)); err != nil {
		return fmt.Errorf("CHANGELOG.md: the date of %s: %w", version, err)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	if !strings.Contains("\n"+section, "\n- ") {
		return fmt.Errorf("CHANGELOG.md says nothing of %s", version)
	}
	return nil
}
