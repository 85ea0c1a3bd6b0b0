package release_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"

	"github.com/hookstart/hookstart/deploy/release"
)

// A released module requires only released modules, and comes after them in Modules.
func TestModulesAreComplete(t *testing.T) {
	for n, folder := range release.Modules {
		content, err := release.GoMod(root, folder, version)
		if err != nil {
			t.Fatal(err)
		}
		file, err := modfile.Parse(folder, content, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(file.Replace) != 0 {
			t.Errorf("%s still replaces %v", folder, file.Replace[0].Old)
		}
		for _, required := range file.Require {
			name, ours := strings.CutPrefix(required.Mod.Path, release.ModulePathPrefix+"/")
			if ours &&
				(!slices.Contains(release.Modules[:n], name) || required.Mod.Version != version) {
				t.Errorf("%s requires %s", folder, required.Mod)
			}
		}
	}
}

func TestCheckVersion(t *testing.T) {
	for _, good := range []string{"v0.1.0", "v0.1.0-rc.1", "v1.20.3"} {
		if err := release.CheckVersion(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{
		"", "0.1.0", "v0.1", "v0.1.0+build", "v01.0.0", "v2.0.0", "latest",
	} {
		if err := release.CheckVersion(bad); err == nil {
			t.Errorf("%q passes", bad)
		}
	}
}

func TestCheckChangelog(t *testing.T) {
	const good = "# Changelog\n\n## [Unreleased]\n\n## [0.1.0] - 2026-11-22\n### Fixed\n- A " +
		"fault.\n"
	if err := release.CheckChangelog(good, "v0.1.0"); err != nil {
		t.Error(err)
	}
	for what, text := range map[string]string{
		"no section":    "# Changelog\n\n## [Unreleased]\n- A fault.\n",
		"no date":       strings.Replace(good, "2026-11-22", "soon", 1),
		"nothing in it": strings.Replace(good, "- A fault.", "", 1),
		"only what follows": strings.Replace(good, "- A fault.",
			"\n## [0.0.9] - 2026-11-21\n- Another.", 1),
	} {
		if err := release.CheckChangelog(text, "v0.1.0"); err == nil {
			t.Errorf("%s: it passes", what)
		}
	}
}

// A release is a commit that is on no branch and has a tag for each module. Prepare refuses to
// release the same version again, and to release a checkout with uncommitted changes.
func TestPrepare(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	checkout := t.TempDir()
	git := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = checkout
		said, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, said)
		}
		return strings.TrimSpace(string(said))
	}
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(checkout, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	versioned := []string{"shared/runner/node/package.json"}
	for _, folder := range release.Modules {
		versioned = append(versioned, filepath.Join(folder, "go.mod"))
	}
	for _, name := range versioned {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		write(name, string(text))
	}
	write("CHANGELOG.md", "# Changelog\n\n## [0.1.0] - 2026-11-22\n- All of it.\n")
	git("init", "--quiet", "--initial-branch=main")
	git("config", "user.name", "Tests")
	git("config", "user.email", "tests@example.com")
	git("add", ".")
	git("commit", "--quiet", "--message=all")
	before := git("rev-parse", "main")

	write("new", "")
	var out bytes.Buffer
	if err := release.Prepare(t.Context(), checkout, "v0.1.0", nil, &out); err == nil ||
		!strings.Contains(err.Error(), "not committed") {
		t.Errorf("with a change: %v", err)
	}
	if err := os.Remove(filepath.Join(checkout, "new")); err != nil {
		t.Fatal(err)
	}

	// If the command that builds the files fails, nothing is released.
	fails := []string{"sh", "-c", "exit 3"}
	if err := release.Prepare(t.Context(), checkout, "v0.1.0", fails, &out); err == nil ||
		!strings.Contains(err.Error(), "nothing is released") {
		t.Errorf("with a command that fails: %v", err)
	}
	if tags := git("tag", "--list"); tags != "" {
		t.Errorf("after a command that failed there is %s", tags)
	}
	made := []string{"sh", "-c", `grep '"version"' ` + versioned[0] + "; git rev-parse HEAD"}
	if err := release.Prepare(t.Context(), checkout, "v0.1.0", made, &out); err != nil {
		t.Fatal(err)
	}
	if want := `"version": "0.1.0",` + "\n" + git("rev-parse", "v0.1.0^{commit}") +
		"\n"; !strings.Contains(out.String(), want) {
		t.Errorf("the command ran elsewhere: it printed %s, and not %s", &out, want)
	}
	if got := git("rev-parse", "main"); got != before || git("status", "--porcelain") != "" {
		t.Error("the branch or its work tree changed")
	}
	if want := "git push origin " + strings.Join(release.Tags("v0.1.0"), " ") +
		"\n"; !strings.Contains(out.String(), want) {
		t.Errorf("it says %s", &out)
	}
	for _, tag := range release.Tags("v0.1.0") {
		if parent := git("rev-parse", tag+"^{commit}^"); parent != before {
			t.Errorf("%s follows %s", tag, parent)
		}
	}
	if text := git("show", "shared/v0.1.0:shared/go.mod"); !strings.Contains(text,
		release.ModulePathPrefix+"/proto v0.1.0") || strings.Contains(text, "replace") {
		t.Errorf("shared/go.mod of the release:\n%s", text)
	}
	if text := git("show", "v0.1.0:shared/runner/node/package.json"); !strings.Contains(text,
		`"version": "0.1.0"`) {
		t.Errorf("package.json of the release:\n%s", text)
	}
	if err := release.Prepare(t.Context(), checkout, "v0.1.0", nil, &out); err == nil ||
		!strings.Contains(err.Error(), "there is a tag") {
		t.Errorf("a second time: %v", err)
	}
}
