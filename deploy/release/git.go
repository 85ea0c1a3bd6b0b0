package release

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// Prepare makes a release of the commit that is checked out at root. The release is a new commit on
// top of that one. It is on no branch, changes only the versions, and has the release's tags. The
// current branch and its work tree stay unchanged, and nothing is pushed.
//
// Before it creates the tags, Prepare runs command in a folder where the release commit is checked
// out, unless command is empty. If command fails, Prepare returns an error and creates no tags.
// Prepare writes to out the output of command, and the git command that publishes the release.
func Prepare(
	ctx context.Context, root, version string, command []string, out io.Writer,
) (err error) {
	if err := CheckVersion(version); err != nil {
		return err
	}
	//nolint:gosec // in the checkout
	changelog, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	if err := CheckChangelog(string(changelog), version); err != nil {
		return err
	}
	switch changes, err := git(ctx, root, "status", "--porcelain"); {
	case err != nil:
		return err
	case changes != "":
		return errors.New("there are changes that are not committed: a release is made of a commit")
	}
	tags := Tags(version)
	switch existing, err := git(ctx, root, append([]string{"tag", "--list"}, tags...)...); {
	case err != nil:
		return err
	case existing != "":
		return fmt.Errorf("there is a tag already: %s", strings.ReplaceAll(existing, "\n", ", "))
	}

	scratch, err := os.MkdirTemp("", "hookstart-release-")
	if err != nil {
		return err
	}
	tree := filepath.Join(scratch, "tree")
	defer func() {
		_, removing := git(context.WithoutCancel(ctx), root, "worktree", "remove", "--force", tree)
		err = errors.Join(err, removing, os.RemoveAll(scratch))
	}()
	if _, err := git(ctx, root, "worktree", "add", "--quiet", "--detach", tree); err != nil {
		return err
	}
	for _, folder := range Modules {
		content, err := GoMod(tree, folder, version)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(tree, folder, "go.mod"), content, 0o600); err != nil {
			return err
		}
	}
	if err := setPackageJSONVersion(tree, version); err != nil {
		return err
	}
	if _, err := git(ctx, tree, "commit", "--quiet", "--all", "--message",
		"release: "+version); err != nil {
		return err
	}
	if len(command) > 0 {
		cmd := exec.CommandContext(ctx, command[0], command[1:]...) //nolint:gosec // the releaser's
		cmd.Dir, cmd.Stdout, cmd.Stderr = tree, out, out
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("nothing is released, because %s failed: %w",
				strings.Join(command, " "), err)
		}
	}
	for _, tag := range tags {
		if _, err := git(ctx, tree, "tag", "--annotate", "--message", "hookstart "+version,
			tag); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(out,
		"%s is prepared, here alone. To publish it:\n  git push origin %s\nTo take it back:\n  "+
			"git tag --delete %[2]s\n",
		version, strings.Join(tags, " "))
	return err
}

// packageJSONPath is the path of the Node.js kit's package.json, which gets the release's version.
const packageJSONPath = "shared/runner/node/package.json"

func setPackageJSONVersion(root, version string) error {
	path := filepath.Join(root, packageJSONPath)
	text, err := os.ReadFile(path) //nolint:gosec // in the checkout
	if err != nil {
		return err
	}
	const unreleased = `"version": "0.0.0"`
	before, after, ok := strings.Cut(string(text), unreleased)
	if !ok {
		return fmt.Errorf("%s does not say %s", packageJSONPath, unreleased)
	}
	released := before + `"version": "` + strings.TrimPrefix(version, "v") + `"` + after
	//nolint:gosec // a file of the checkout that is released
	return os.WriteFile(path, []byte(released), 0o600)
}

// Tags returns the names of a release's tags: one for the whole release and one for each module.
func Tags(version string) []string {
	tags := []string{version}
	for _, folder := range Modules {
		tags = append(tags, path.Join(folder, version))
	}
	return tags
}

// git runs git in a folder and returns its stdout without surrounding white space.
func git(ctx context.Context, folder string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...) //nolint:gosec // arguments of our own
	cmd.Dir = folder
	var stderr strings.Builder
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(output)), nil
}
