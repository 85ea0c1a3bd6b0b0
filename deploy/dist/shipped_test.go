package dist_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/hookstart/hookstart/deploy/dist"
)

// shipped returns the folder named by HOOKSTART_SHIPPED. It builds a release of this checkout there
// if the folder holds none yet.
var shipped = sync.OnceValues(func() (string, error) { //nolint:gochecknoglobals // made once
	folder := os.Getenv("HOOKSTART_SHIPPED")
	if _, err := os.Stat(filepath.Join(folder, "SHA256SUMS")); err == nil {
		return folder, nil
	}
	return folder, makeAll(root, folder, "v0.1.0")
})

// makeAll builds a whole release in a folder, as make dist does: it compiles the program dist and
// runs it. wrapper is put before the command that runs the program. It may be a program such as
// env, with arguments.
func makeAll(checkout, folder, version string, wrapper ...string) error {
	program := folder + ".make" // not in the folder, because the program empties it
	defer os.Remove(program)
	for _, args := range [][]string{
		{"go", "build", "-buildvcs=false", "-o", program, "./deploy/dist/cmd/dist"},
		append(wrapper, program, "-out", folder, "-nfpm", os.Getenv("HOOKSTART_NFPM"), "-platforms",
			os.Getenv("HOOKSTART_PLATFORMS"), version),
	} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = checkout
		if out, err := cmd.CombinedOutput(); err != nil {
			return errors.Join(err, errors.New(string(out)))
		}
	}
	return nil
}

// anotherUser returns a wrapper, to be put before a command, that runs the command as the user
// nobody, with a different umask, time zone and home folder. This user keeps root's capabilities to
// read and write every file, because the command uses the current user's Go caches. The securebit
// no_setuid_fixup makes access(2), with which git looks for files, respect these capabilities. If
// the program setpriv is missing, or the current user is not root, only the umask and the time zone
// are different.
func anotherUser(t *testing.T) []string {
	t.Helper()
	shell := []string{"sh", "-c", `umask 077 && exec env TZ=Pacific/Auckland "$@"`, "sh"}
	if _, err := exec.LookPath("setpriv"); err != nil || os.Geteuid() != 0 {
		t.Log("the same user makes it again: that needs root, and the program setpriv")
		return shell
	}
	args := []string{"env", "HOME=" + t.TempDir(), "USER=nobody"}
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPATH"} {
		args = append(args, name+"="+strings.TrimSpace(command(t, ".", "go", "env", name)))
	}
	const caps = "-all,+dac_override,+dac_read_search"
	args = append(args, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
		"--securebits=+no_setuid_fixup", "--inh-caps="+caps, "--ambient-caps="+caps)
	return append(args, shell...)
}

// withoutNetwork returns a wrapper, to be put before a command, that runs the command without a
// network. If the current user is not root, or the system has no network namespaces, the wrapper
// only keeps Go from downloading modules.
func withoutNetwork(t *testing.T) []string {
	t.Helper()
	off := []string{"env", "GOPROXY=off"}
	if err := exec.CommandContext(t.Context(), "unshare", "--net", "true").Run(); err != nil {
		t.Logf("the network is there: unshare --net: %v", err)
		return off
	}
	return append([]string{"unshare", "--net"}, off...)
}

// release returns the folder of the release, as shipped returns it. It skips the test if
// HOOKSTART_SHIPPED is not set.
func release(t *testing.T) string {
	t.Helper()
	if os.Getenv("HOOKSTART_SHIPPED") == "" {
		t.Skip("make shipped runs this")
	}
	folder, err := shipped()
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

// check runs the script checks/NAME.sh. If the machine lacks something that the whole script needs,
// the script prints what is missing and exits with 77, and check skips the test. For each part that
// cannot run, the script prints "SKIPPED PART: REASON", and check runs a subtest named PART that is
// skipped.
func check(t *testing.T, name string, env ...string) {
	t.Helper()
	work := filepath.Join(release(t), ".checks")
	if err := os.MkdirAll(work, 0o755); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "bash", filepath.Join("checks", name+".sh"))
	cmd.Env = append(append(os.Environ(), "DIST="+release(t), "WORK="+work), env...)
	cmd.Stdout, cmd.Stderr = io.MultiWriter(&out, t.Output()), io.MultiWriter(&out, t.Output())
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 77 {
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		t.Skip(lines[len(lines)-1])
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^SKIPPED (\w+): (.*)$`).FindAllStringSubmatch(
		out.String(), -1) {
		t.Run(m[1], func(t *testing.T) { t.Skip(m[2]) })
	}
}

// prometheus returns the path of a Prometheus 3, which Debian 12 does not have. If the environment
// variable PROMETHEUS is set, prometheus returns its value. Otherwise, prometheus builds the
// program from the Go module whose parser TestAlerts uses. It returns "" if the build fails, for
// instance because a dependency cannot be downloaded.
func prometheus(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("PROMETHEUS"); path != "" {
		return path
	}
	found := command(t, filepath.Join(root, "deploy", "e2e"), "go", "list", "-m", "-f",
		"{{.Version}} {{.Dir}}", "github.com/prometheus/prometheus")
	version, folder, _ := strings.Cut(strings.TrimSpace(found), " ")
	program, err := filepath.Abs(filepath.Join(release(t), ".checks", "prometheus-"+version))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(program); err == nil {
		return program
	}
	source := filepath.Join(t.TempDir(), "prometheus")
	for _, args := range [][]string{
		{"cp", "-r", folder, source},
		{"chmod", "-R", "u+w", source},
		// Leave out Prometheus's cloud service discovery, which accounts for most of the build
		// time.
		{
			"go", "build", "-buildvcs=false", "-tags=remove_all_sd", "-o", program,
			"./cmd/prometheus",
		},
	} {
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
		if args[0] == "go" {
			cmd.Dir = source
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Logf("Prometheus cannot be built: %v: %.500s", err, out)
			return ""
		}
	}
	return program
}

// servers builds the programs nats-server and nk, which the packages do not contain. It returns the
// folder with both.
func servers(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", folder+"/",
		"github.com/nats-io/nats-server/v2", "github.com/nats-io/nkeys/nk")
	cmd.Dir, cmd.Env = filepath.Join(root, "shared"), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return folder
}

// A second build of the whole release is identical to the first, although it is made in another
// folder by another user, with another umask and time zone, at another time, and without a network.
func TestShippedTwice(t *testing.T) {
	first := release(t)
	second := filepath.Join(t.TempDir(), "dist")
	checkout := clone(t)
	r, err := dist.New(t.Context(), root, first, "v0.1.0", io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(r.Commit, "-dirty") {
		t.Skip("the checkout has changes: the second one would be of another commit")
	}
	if err := makeAll(checkout, second, "v0.1.0", append(withoutNetwork(t),
		anotherUser(t)...)...); err != nil {
		t.Fatal(err)
	}
	same(t, first, second)
}

// make release builds the files from the commit that it tags, signs them, and leaves the checkout
// unchanged. Once its tools are installed, it needs no network.
func TestShippedRelease(t *testing.T) {
	release(t)
	checkout := clone(t)
	changelog := filepath.Join(checkout, "CHANGELOG.md")
	text, err := os.ReadFile(changelog)
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, "\n## [0.1.0] - 2026-11-24\n- All of it.\n"...)
	if err := os.WriteFile(changelog, text, 0o600); err != nil {
		t.Fatal(err)
	}
	command(t, checkout, "git", "config", "user.name", "Tests")
	command(t, checkout, "git", "config", "user.email", "tests@example.com")
	command(t, checkout, "git", "commit", "-q", "--all", "--message", "a changelog")
	tools := filepath.Dir(filepath.Dir(os.Getenv("HOOKSTART_NFPM")))
	if err := os.Symlink(tools, filepath.Join(checkout, ".tools")); err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(t.TempDir(), "key")
	command(t, checkout, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "releaser", "-f", key)
	args := append(withoutNetwork(t), "make", "release", "VERSION=v0.1.0", "SIGN_WITH="+key,
		"PLATFORMS="+runtime.GOOS+"/"+runtime.GOARCH)
	command(t, checkout, args[0], args[1:]...)

	made := filepath.Join(checkout, "dist")
	// Verify the release with the commands in installing.md.
	command(t, made, "sh", "-c", `echo "releaser $(cat "$0")" > "$1" &&
		ssh-keygen -Y verify -f "$1" -I releaser -n hookstart-release \
			-s SHA256SUMS.sig < SHA256SUMS &&
		sha256sum --check --strict SHA256SUMS`, key+".pub", filepath.Join(t.TempDir(), "signers"))
	name := "hookstart_0.1.0_" + runtime.GOOS + "_" + runtime.GOARCH
	unpacked := t.TempDir()
	command(t, unpacked, "tar", "-xzf", filepath.Join(made, name+".tar.gz"))
	said := command(t, unpacked, filepath.Join(unpacked, name, "bin", "hookstart"), "--version")
	tagged := strings.TrimSpace(command(t, checkout, "git", "rev-parse", "v0.1.0^{commit}"))
	if !strings.Contains(said, "v0.1.0") || !strings.Contains(said, tagged+" of ") {
		t.Errorf("the tag is of %s, and what is shipped says %s", tagged, said)
	}
	if worktrees := command(t, checkout, "git", "worktree", "list"); strings.Count(worktrees,
		"\n") != 1 {
		t.Errorf("it left %s", worktrees)
	}
}

func TestShippedPackages(t *testing.T)     { check(t, "packages") }
func TestShippedFirstMinutes(t *testing.T) { check(t, "firstminutes") }
func TestShippedImages(t *testing.T)       { check(t, "images") }

// The systemd units in the packages work, both after the installation and after an upgrade to a
// simulated next release. That release adds a database migration, so the programs of this release
// must refuse a database that the next release has migrated.
func TestShippedUnits(t *testing.T) {
	release(t)
	checkout, next := clone(t), filepath.Join(t.TempDir(), "next")
	for _, database := range []string{"sqlite", "postgres"} {
		name := filepath.Join(checkout, "executor", "internal", "store", database, "migrations",
			"00101_next.sql")
		const migration = "ALTER TABLE executions ADD COLUMN made_by TEXT;\n"
		if err := os.WriteFile(name, []byte(migration), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := makeAll(checkout, next, "v0.1.1"); err != nil {
		t.Fatal(err)
	}
	check(t, "units", "SERVERS="+servers(t), "NEXT="+next)
}

func TestShippedDockerfile(t *testing.T) {
	release(t)
	check(t, "dockerfile", "SERVERS="+servers(t))
}

func TestShippedCompose(t *testing.T) {
	release(t)
	check(t, "compose", "SERVERS="+servers(t), "KUSTOMIZE="+os.Getenv("HOOKSTART_KUSTOMIZE"),
		"PROMETHEUS="+prometheus(t))
}
