// Package release makes releases of hookstart's modules. In the checkout they require each other at
// v0.0.0 and are found by replace directives, which count for nobody else. A release is a commit
// whose go.mod files require each other at its version, and a tag of it for each module.
package release

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

// Root is the path that the paths of all modules begin with.
const Root = "github.com/hookstart/hookstart"

// Modules are the folders of the modules that are released, each after those that it requires: programs,
// the kit for runners and the API's client are made of them. The others are for work on the repository itself.
//
//nolint:gochecknoglobals // a constant
var Modules = []string{
	"proto", "shared/execution", "shared/retry", "shared/tracing", "shared/stream", "shared/runner",
	"shared/child", "shared/durable", "shared/embednats", "shared/runner/runnertest", "shared/runner/runnermetrics",
	"shared", "ingress", "executor/client", "executor", "deploy/local",
}

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
