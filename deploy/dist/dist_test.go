package dist_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hookstart/hookstart/deploy/dist"
)

// root is the folder of the checkout.
const root = "../.."

func command(t *testing.T, folder, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = folder
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// clone clones the repository of the checkout, copies the uncommitted changes of tracked files, and
// returns the folder of the copy. It commits nothing, so every copy has the same commit, and the
// releases built from two copies can be identical.
func clone(t *testing.T) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "a folder")
	command(t, root, "git", "-c", "safe.directory=*", "clone", "-q", "--no-hardlinks", ".", folder)
	for name := range strings.SplitSeq(strings.TrimSpace(command(t, root, "git", "-c",
		"safe.directory=*", "diff", "--name-only", "--diff-filter=d", "HEAD")), "\n") {
		if name == "" {
			continue
		}
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
		command(t, folder, "git", "add", name)
	}
	return folder
}

// program returns testdata/program, compiled for a platform. It compiles the program only once for
// each platform.
//
//nolint:gochecknoglobals // compiled once
var program = func() func(dist.Platform) ([]byte, error) {
	compiled := map[dist.Platform][]byte{}
	return func(p dist.Platform) ([]byte, error) {
		if compiled[p] != nil {
			return compiled[p], nil
		}
		folder, err := os.MkdirTemp("", "hookstart-dist-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(folder)
		file := filepath.Join(folder, "program")
		cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o",
			file, "./testdata/program")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.OS, "GOARCH="+p.Arch)
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, errors.Join(err, errors.New(string(out)))
		}
		compiled[p], err = os.ReadFile(file)
		return compiled[p], err
	}
}()

// newRelease returns a release of a checkout whose programs for Linux and for this machine are
// replaced by testdata/program.
func newRelease(t *testing.T, checkout string) *dist.Release {
	t.Helper()
	r, err := dist.New(t.Context(), checkout, filepath.Join(t.TempDir(), "dist"), "v1.2.3-rc.1",
		io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []dist.Platform{
		{OS: "linux", Arch: "arm64"}, {OS: runtime.GOOS, Arch: runtime.GOARCH},
	} {
		content, err := program(p)
		if err != nil {
			t.Fatal(err)
		}
		folder := t.TempDir()
		for _, name := range []string{"hookstart", "hookstart-local", "ingress", "executor", "nk"} {
			if err := os.WriteFile(filepath.Join(folder, name), content, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		r.BinaryFolders[p] = folder
	}
	r.NFPM = os.Getenv("HOOKSTART_NFPM")
	return r
}

// shared caches the release that packed returns to every test.
var shared struct { //nolint:gochecknoglobals // packed once
	once    sync.Once
	folder  string
	release *dist.Release
	err     error
}

// packed returns a release of this checkout for which Pack has run. All tests share it, because
// compressing is slow under the race detector; no test may change it.
func packed(t *testing.T) *dist.Release {
	t.Helper()
	shared.once.Do(func() {
		//nolint:usetesting // it outlives a test
		shared.folder, shared.err = os.MkdirTemp("", "hookstart-dist-")
		if shared.err != nil {
			return
		}
		r := newRelease(t, root)
		r.Out = filepath.Join(shared.folder, "dist")
		shared.err = r.Pack(t.Context())
		shared.release = r
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.release
}

func TestMain(m *testing.M) {
	code := m.Run()
	_ = os.RemoveAll(shared.folder)
	os.Exit(code)
}

func files(t *testing.T, folder string) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if entry.Type().IsRegular() {
			if found[entry.Name()], err = os.ReadFile(filepath.Join(folder,
				entry.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
	return found
}

// same fails the test unless both folders contain the same files with identical contents. Each
// folder holds a release.
func same(t *testing.T, first, second string) {
	t.Helper()
	a, b := files(t, first), files(t, second)
	if len(a) != len(b) || len(a) == 0 {
		t.Errorf("%d files and %d", len(a), len(b))
	}
	for name, content := range a {
		if !bytes.Equal(content, b[name]) {
			t.Errorf("%s differs: %d bytes and %d", name, len(content), len(b[name]))
		}
	}
}

// Builds in two different folders, with different umasks, time zones and locales, are identical.
// The compiled programs are not compared here, but by make shipped, which also builds as another
// user.
func TestTheSameEverywhere(t *testing.T) {
	one := packed(t)
	other := newRelease(t, clone(t))
	if other.Commit, other.Time = one.Commit, one.Time; !other.Time.Before(time.Now()) {
		t.Fatal("the commit is of the future")
	}
	t.Setenv("TZ", "Pacific/Auckland")
	t.Setenv("LC_ALL", "tr_TR.UTF-8")
	defer umask(umask(0o077))
	if err := other.Pack(t.Context()); err != nil {
		t.Fatal(err)
	}
	same(t, one.Out, other.Out)
}

// The archive contains the programs, the files generated from their flags, and the documents. Each
// link in a document leads to a file in the archive, or to the file at the release's commit in the
// project's repository.
func TestArchive(t *testing.T) {
	r := packed(t)
	const name = "hookstart_1.2.3-rc.1_linux_arm64"
	content := unpack(t, filepath.Join(r.Out, name+".tar.gz"))
	for file, mode := range map[string]int64{
		"bin/hookstart":                          0o755,
		"bin/hookstart-local":                    0o755,
		"bin/ingress":                            0o755,
		"bin/executor":                           0o755,
		"README.md":                              0o644,
		"man/man1/hookstart.1":                   0o644,
		"man/man8/ingress.8":                     0o644,
		"completions/_hookstart":                 0o644,
		"deploy/nats/make-secrets.sh":            0o755,
		"deploy/systemd/hookstart-local.service": 0o644,
		"deploy/systemd/sysusers.d/hookstart-server.conf": 0o644,
	} {
		f, ok := content[name+"/"+file]
		switch {
		case !ok:
			t.Errorf("no %s", file)
		case f.Mode != mode || f.Uid != 0 || f.Uname != "" || !f.ModTime.Equal(r.Time):
			t.Errorf("%s: mode %o, user %d %q, %s", file, f.Mode, f.Uid, f.Uname, f.ModTime)
		}
	}
	link := regexp.MustCompile(`\]\(([^)\s#]+)`)
	address := regexp.MustCompile(`^https://github\.com/hookstart/hookstart/(blob|tree|raw)/` +
		regexp.QuoteMeta(strings.TrimSuffix(r.Commit, "-dirty")) + `/(.*)$`)
	links, addresses := 0, 0
	for document, f := range content {
		if filepath.Ext(document) != ".md" {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(string(f.content), -1) {
			to := path.Join(path.Dir(document), m[1])
			at := address.FindStringSubmatch(m[1])
			switch {
			case at != nil:
				addresses++
				if _, err := os.Stat(filepath.Join(root, at[2])); err != nil {
					t.Errorf("%s links to %s, which the commit does not have", document, m[1])
				}
			case strings.Contains(m[1], ":"):
			case content[to] == nil && content[to+"/"] == nil:
				t.Errorf("%s links to %s, which the archive does not have", document, m[1])
			default:
				links++
			}
		}
	}
	if links < 100 || addresses < 10 {
		t.Errorf("only %d links inside, and %d to the repository", links, addresses)
	}
}

// The compose file and the kustomization in the archive use the images of the release instead of
// building them, because the archive has no sources. The release contains each image that they
// name.
func TestArchiveNamesTheImagesOfTheRelease(t *testing.T) {
	r := packed(t)
	const name = "hookstart_1.2.3-rc.1_linux_arm64"
	content := unpack(t, filepath.Join(r.Out, name+".tar.gz"))
	text := func(file string) string { return string(content[name+"/deploy/"+file].content) }
	compose := text("compose/compose.yaml")
	if strings.Contains(compose, "build:") {
		t.Error("compose.yaml builds images")
	}
	images := regexp.MustCompile(`(?m)^ +image: hookstart/(\S+):1\.2\.3-rc\.1\n +pull_policy: never$`).
		FindAllStringSubmatch(compose, -1)
	if ours := strings.Count(compose, "image: hookstart/"); len(images) != 3 || ours != 3 {
		t.Errorf("compose.yaml names %d images of ours, %d of the release", ours, len(images))
	}
	for _, image := range images {
		if _, err := os.Stat(filepath.Join(r.Out,
			image[1]+"_1.2.3-rc.1_linux_arm64.oci.tar")); err != nil {
			t.Error(err)
		}
	}
	kustomization := text("kubernetes/kustomization.yaml")
	if strings.Count(kustomization, "newTag: 1.2.3-rc.1}") != 2 ||
		strings.Count(kustomization, "newTag: ") != 2 {
		t.Errorf("kustomization.yaml names other images: %s", kustomization)
	}
}

// entry is one entry of an archive, such as a file or a folder, with its content.
type entry struct {
	*tar.Header
	content []byte
}

// unpack returns the entries of an archive, keyed by name.
func unpack(t *testing.T, archive string) map[string]*entry {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	plain, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]*entry{}
	for reader := tar.NewReader(plain); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		found[header.Name] = &entry{header, text}
	}
}

// Each file of the release has a checksum in SHA256SUMS, and an SBOM that has everything that SPDX
// 2.3 requires.
func TestChecksumsAndBills(t *testing.T) {
	r := packed(t)
	command(t, r.Out, "sha256sum", "--check", "--strict", "SHA256SUMS")
	sums := string(files(t, r.Out)["SHA256SUMS"])
	id := regexp.MustCompile(`^SPDXRef-[a-zA-Z0-9.-]+$`)
	for name, content := range files(t, r.Out) {
		if name == "SHA256SUMS" {
			continue
		}
		if !strings.Contains(sums, "  "+name+"\n") {
			t.Errorf("%s has no checksum", name)
		}
		if !strings.HasSuffix(name, ".spdx.json") {
			if _, err := os.Stat(filepath.Join(r.Out, name+".spdx.json")); err != nil {
				t.Errorf("%s has no bill of materials", name)
			}
			continue
		}
		var bill struct {
			SPDXVersion, SPDXID, DocumentNamespace string

			Packages      []struct{ Name, SPDXID, VersionInfo, DownloadLocation string }
			Relationships []struct{ SpdxElementID, RelationshipType, RelatedSpdxElement string }
		}
		if err := json.Unmarshal(content, &bill); err != nil {
			t.Fatal(err)
		}
		known := []string{bill.SPDXID}
		for _, p := range bill.Packages {
			if !id.MatchString(p.SPDXID) || p.VersionInfo == "" || p.DownloadLocation == "" ||
				slices.Contains(known, p.SPDXID) {
				t.Errorf("%s: %+v", name, p)
			}
			known = append(known, p.SPDXID)
		}
		for _, relation := range bill.Relationships {
			if !slices.Contains(known, relation.SpdxElementID) ||
				!slices.Contains(known, relation.RelatedSpdxElement) {
				t.Errorf("%s: %+v", name, relation)
			}
		}
		if strings.Contains(name, "tar.gz") &&
			!strings.Contains(string(content), `"pkg:golang/stdlib@1.`) {
			t.Errorf("%s does not name Go's standard library", name)
		}
	}
}

// A release can be signed, and its signature can be verified, without a network. Signing it again
// replaces the signature. The signature is not valid for other checksums.
func TestSignature(t *testing.T) {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("no ssh-keygen")
	}
	folder := t.TempDir()
	r := &dist.Release{Out: folder, Log: io.Discard}
	for name, content := range map[string]string{
		"SHA256SUMS": "0  file\n",
		"changed":    "1  file\n",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	key := filepath.Join(folder, "key")
	command(t, folder, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "releaser", "-f", key)
	for range 2 { // a second signature replaces the first
		if err := r.Sign(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	public, err := os.ReadFile(key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "signers"), append([]byte("releaser "), public...),
		0o600); err != nil {
		t.Fatal(err)
	}
	verify := "ssh-keygen -Y verify -f signers -I releaser -n hookstart-release -s SHA256SUMS.sig <"
	command(t, folder, "sh", "-c", verify+"SHA256SUMS")
	if exec.CommandContext(t.Context(), "sh", "-c",
		"cd "+folder+" && "+verify+"changed").Run() == nil {
		t.Error("the signature of other checksums is taken")
	}
}

func TestVersionsThatAreNone(t *testing.T) {
	for _, version := range []string{"", "0.1.0", "v1", "v1.2", "v1.2.3+meta", "latest"} {
		if _, err := dist.New(t.Context(), root, t.TempDir(), version, io.Discard); err == nil {
			t.Errorf("%q is taken for a version", version)
		}
	}
}
