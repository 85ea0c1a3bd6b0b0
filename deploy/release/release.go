// Package release prepares releases of hookstart's modules. In the checkout, the modules require
// each other at v0.0.0 and resolve each other through replace directives, which Go ignores in
// dependencies. A release is a commit whose go.mod files require the modules at the release's
// version, with one tag per module on that commit.
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

// ModulePathPrefix is the beginning of the paths of all modules, without the slash that follows it.
const ModulePathPrefix = "github.com/hookstart/hookstart"

// Modules are the folders of the released modules. Each comes after the modules that it requires.
// They contain the programs, the kit for runners and the API client. The other modules are used
// only to develop this repository.
//
//nolint:gochecknoglobals // a constant
var Modules = []string{
	"proto", "shared/execution", "shared/retry", "shared/tracing", "shared/stream", "shared/runner",
	"shared/child", "shared/durable", "shared/embednats", "shared/runner/runnertest",
	"shared/runner/runnermetrics",
	"shared", "ingress", "executor/client", "executor", "deploy/local",
}

// CheckVersion returns an error unless the version can be released: it must be a canonical semantic
// version without build metadata, such as v0.1.0, whose major version is 0 or 1.
func CheckVersion(version string) error {
	if semver.Canonical(version) != version || semver.Build(version) != "" {
		return fmt.Errorf("%q is not a version: it has to be like v0.1.0 or v0.1.0-rc.1", version)
	}
	if major := semver.Major(version); major != "v0" && major != "v1" {
		return fmt.Errorf("%s: from v2 on, the paths of the modules must end in /%s", version,
			major)
	}
	return nil
}

// GoMod returns the go.mod file of a module for the release. It requires the other modules of the
// repository at version. It has no replace directives, because `go install` of a program at a
// version does not allow them.
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
		if isRepositoryModule(required.Mod.Path) {
			if err := file.AddRequire(required.Mod.Path, version); err != nil {
				return nil, err
			}
		}
	}
	for _, replaced := range file.Replace {
		if !isRepositoryModule(replaced.Old.Path) {
			return nil,
				fmt.Errorf("%s replaces %s, but a replace directive has no effect in modules "+
					"that require it", name, replaced.Old.Path)
		}
		if err := file.DropReplace(replaced.Old.Path, replaced.Old.Version); err != nil {
			return nil, err
		}
	}
	file.Cleanup()
	return file.Format()
}

func isRepositoryModule(modulePath string) bool {
	return strings.HasPrefix(modulePath, ModulePathPrefix+"/")
}

// CheckChangelog returns an error that describes what CHANGELOG.md lacks for a release: a section
// for the version, with a valid date and at least one entry.
func CheckChangelog(text, version string) error {
	heading := "## [" + strings.TrimPrefix(version, "v") + "] - "
	_, after, ok := strings.Cut("\n"+text, "\n"+heading)
	if !ok {
		return fmt.Errorf("CHANGELOG.md has no section %q: give Unreleased that heading, and "+
			"begin a new Unreleased", heading+"YYYY-MM-DD")
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
