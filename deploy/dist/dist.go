// Package dist builds the files of a release: archives, packages for distributions based on Debian
// and Fedora, images, a Helm chart, SBOMs and checksums. The builds are reproducible: the files
// depend only on the commit and the Go version, not on the machine, the folder, the user, the
// umask, the locale or the time.
package dist

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/semver"
)

// Platform is an operating system and an architecture, under the names that Go uses.
type Platform struct {
	OS   string // a GOOS, such as linux
	Arch string // a GOARCH, such as amd64
}

// String returns the platform in the form used in file names, such as linux_amd64.
func (p Platform) String() string { return p.OS + "_" + p.Arch }

// Platforms returns the platforms to build archives for. Packages and images are built for Linux
// only.
func Platforms() []Platform {
	return []Platform{
		{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"},
	}
}

// Release describes one release and its folders. Apart from temporary files, its methods write only
// below Out.
type Release struct {
	// Root is the folder of the checkout. Tracked files are shipped with the contents that they
	// have in this folder, including changes that are not committed.
	Root string
	// Out is the folder to which the files of the release are written.
	Out string
	// Version is the version of the release, such as v0.1.0.
	Version string
	// Commit is the full hash of the commit, followed by -dirty if tracked files have uncommitted
	// changes.
	Commit string
	// Time is the commit's time. All files of the release have it as their modification time.
	Time time.Time
	// BinaryFolders maps each platform to the folder with its compiled programs. Compile fills it.
	BinaryFolders map[Platform]string
	// NFPM is the path of the nfpm program, which builds packages. If it is "", Pack builds no
	// packages.
	NFPM string
	// Log receives one line of text for each step.
	Log io.Writer
}

// New returns a Release for the commit that is checked out in root.
func New(ctx context.Context, root, out, version string, log io.Writer) (*Release, error) {
	if !semver.IsValid(version) || semver.Canonical(version) != version ||
		semver.Build(version) != "" {
		return nil,
			fmt.Errorf("%q is not a version: it has to be like v0.1.0 or v0.1.0-rc.1", version)
	}
	r := &Release{
		Root:          root,
		Out:           out,
		Version:       version,
		Log:           log,
		BinaryFolders: map[Platform]string{},
	}
	head, err := r.git(ctx, "log", "-1", "--format=%H %ct")
	if err != nil {
		return nil, err
	}
	commit, seconds, _ := strings.Cut(strings.TrimSpace(head), " ")
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("the time of the commit: %w", err)
	}
	r.Time = time.Unix(unix, 0).UTC()
	changes, err := r.git(ctx, "status", "--porcelain", "--untracked-files=no")
	if err != nil {
		return nil, err
	}
	if r.Commit = commit; changes != "" {
		r.Commit += "-dirty"
	}
	return r, nil
}

// VersionNumber returns the version without its leading v, as used in file names.
func (r *Release) VersionNumber() string { return strings.TrimPrefix(r.Version, "v") }

func (r *Release) logf(format string, args ...any) { fmt.Fprintf(r.Log, format+"\n", args...) }

// git runs git in the checkout and returns its stdout. It works even if the checkout belongs to
// another user, which git refuses by default.
func (r *Release) git(ctx context.Context, args ...string) (string, error) {
	root, err := filepath.Abs(r.Root)
	if err != nil {
		return "", err
	}
	out, err := runProgram(ctx, r.Root, nil, "git",
		append([]string{"-c", "safe.directory=" + root}, args...)...)
	return string(out), err
}

// runProgram runs a program and returns its stdout. Its error contains the program's stderr.
func runProgram(
	ctx context.Context, folder string, env []string, name string, args ...string,
) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...) //nolint:gosec // the names are constants
	cmd.Dir, cmd.Env = folder, env
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil,
			fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err,
				bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.Bytes(), nil
}

// mainPackages returns the path of each program's main package, keyed by the program's name.
func mainPackages() map[string]string {
	return map[string]string{
		"hookstart":       "./executor/cmd/hookstart",
		"hookstart-local": "./deploy/local/cmd/hookstart-local",
		"ingress":         "./ingress/cmd/ingress",
		"executor":        "./executor/cmd/executor",
	}
}

// nkeysToolPackage is the package of the NATS tool nk, which make-secrets.sh uses to generate keys
// on a machine without Go.
const nkeysToolPackage = "github.com/nats-io/nkeys/nk"

// Compile compiles all programs for a platform. Their bytes depend only on the version, the commit
// and the Go version. Every program prints all three for --version, so that anyone can repeat the
// build.
func (r *Release) Compile(ctx context.Context, p Platform) error {
	folder, err := filepath.Abs(filepath.Join(r.binDir(), p.String()))
	if err != nil {
		return err
	}
	//nolint:gosec // the files in Out are for every user of the machine
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	r.logf("compiling for %s/%s", p.OS, p.Arch)
	const ops = "github.com/hookstart/hookstart/shared/ops"
	ldflags := fmt.Sprintf("-s -w -X %s.Version=%s -X '%s.Commit=%s of %s'", ops, r.Version, ops,
		r.Commit, r.Time.Format(time.RFC3339))
	args := []string{
		"build", "-trimpath", "-buildvcs=false", "-pgo=deploy/bench/load.pgo", "-ldflags", ldflags,
		"-o", folder + "/",
	}
	args = append(args, slices.Sorted(maps.Values(mainPackages()))...)
	args = append(args, nkeysToolPackage)
	env := append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.OS, "GOARCH="+p.Arch, "GOAMD64=v1",
		"GOARM64=v8.0", "GOFLAGS=", "GOEXPERIMENT=")
	if _, err := runProgram(ctx, r.Root, env, "go", args...); err != nil {
		return err
	}
	r.BinaryFolders[p] = folder
	return nil
}

// binDir returns the folder to which Compile writes the programs.
func (r *Release) binDir() string { return filepath.Join(r.Out, ".bin") }

// RemoveBinaries deletes the programs that Compile has built. Call it after Pack.
func (r *Release) RemoveBinaries() error { return os.RemoveAll(r.binDir()) }

// Pack builds all files of the release from the programs in BinaryFolders, SHA256SUMS last.
func (r *Release) Pack(ctx context.Context) error {
	//nolint:gosec // the files in Out are for every user of the machine
	if err := os.MkdirAll(r.Out, 0o755); err != nil {
		return err
	}
	made, err := r.generateManualsAndCompletions(ctx)
	if err != nil {
		return err
	}
	shipped, err := r.readShippedFiles(ctx)
	if err != nil {
		return err
	}
	for _, p := range slices.SortedFunc(maps.Keys(r.BinaryFolders), func(a, b Platform) int {
		return cmp.Compare(a.String(), b.String())
	}) {
		if err := r.writeArchive(p, shipped, made); err != nil {
			return err
		}
		if p.OS != "linux" {
			continue
		}
		if r.NFPM != "" {
			if err := r.buildPackages(ctx, p, shipped, made); err != nil {
				return err
			}
		}
		if err := r.buildImages(p); err != nil {
			return err
		}
	}
	if err := r.packChart(shipped); err != nil {
		return err
	}
	return r.writeChecksums()
}

// generateManualsAndCompletions runs the programs to generate the manual pages and the shell
// completions.
func (r *Release) generateManualsAndCompletions(ctx context.Context) (*tree, error) {
	host := Platform{runtime.GOOS, runtime.GOARCH}
	folder, ok := r.BinaryFolders[host]
	if !ok {
		return nil,
			fmt.Errorf("manual pages are made by running the programs, and there are none for "+
				"%s/%s", host.OS, host.Arch)
	}
	made := &tree{}
	for name := range mainPackages() {
		page, err := runProgram(ctx, "", []string{}, filepath.Join(folder, name), "--man")
		if err != nil {
			return nil, err
		}
		made.add(manualPath(name), 0o644, page)
	}
	for shell, name := range map[string]string{
		"bash": "hookstart.bash",
		"zsh":  "_hookstart",
		"fish": "hookstart.fish",
	} {
		script, err := runProgram(ctx, "", []string{}, filepath.Join(folder, "hookstart"),
			"completion", shell)
		if err != nil {
			return nil, err
		}
		made.add("completions/"+name, 0o644, script)
	}
	return made, nil
}

// manualPath returns the path of a program's manual page in the archive. The command line's page is
// in section 1, for user commands; the pages of the services are in section 8, for administration.
func manualPath(program string) string {
	if program == "hookstart" {
		return "man/man1/hookstart.1"
	}
	return "man/man8/" + program + ".8"
}

// writeChecksums writes SHA256SUMS with the checksums of all files of the release, in the format of
// sha256sum.
func (r *Release) writeChecksums() error {
	entries, err := os.ReadDir(r.Out)
	if err != nil {
		return err
	}
	var lines strings.Builder
	for _, entry := range entries {
		name := entry.Name()
		if !entry.Type().IsRegular() || strings.HasPrefix(name, "SHA256SUMS") {
			continue
		}
		sum, err := sha256OfFile(filepath.Join(r.Out, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%s  %s\n", sum, name)
	}
	if lines.Len() == 0 {
		return errors.New("nothing was made")
	}
	return r.writeFile("SHA256SUMS", []byte(lines.String()))
}

// writeFile writes a file of the release to Out, and logs its name.
func (r *Release) writeFile(name string, content []byte) error {
	r.logf("%s", name)
	return os.WriteFile(filepath.Join(r.Out, name), content, 0o644) //nolint:gosec // for everybody
}

func sha256OfFile(name string) (string, error) {
	content, err := os.ReadFile(name) //nolint:gosec // of the release
	if err != nil {
		return "", err
	}
	return sha256Hex(content), nil
}

func sha256Hex(content []byte) string {
	digest := sha256.Sum256(content)
	return hex.EncodeToString(digest[:])
}

// Sign signs SHA256SUMS with the releaser's SSH key and writes SHA256SUMS.sig. It needs ssh-keygen
// but no network. The key may be held by an SSH agent.
func (r *Release) Sign(ctx context.Context, key string) error {
	sums := filepath.Join(r.Out, "SHA256SUMS")
	if err := os.Remove(sums + ".sig"); err != nil && !errors.Is(err, os.ErrNotExist) {
		// An existing signature must be removed: ssh-keygen would ask before overwriting it.
		return err
	}
	_, err := runProgram(ctx, "", os.Environ(), "ssh-keygen", "-Y", "sign", "-f", key, "-n",
		"hookstart-release", sums)
	return err
}
