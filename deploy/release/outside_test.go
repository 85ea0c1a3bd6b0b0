package release_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"

	"github.com/hookstart/hookstart/deploy/release"
	"github.com/hookstart/hookstart/shared/child/childtest"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/runner/runnertest"
)

const (
	root    = "../.."
	version = "v0.0.1"
)

// outside is a folder outside of the repository, with a go command that finds the repository's
// modules only through a module proxy.
type outside struct {
	t      *testing.T
	folder string
	env    []string
}

// newOutside creates a folder with the files in testdata, or an empty folder if testdata is "". It
// also packs the modules of the release into a module proxy, from which the go command gets them.
func newOutside(t *testing.T, testdata string) *outside {
	t.Helper()
	// Download everything that a runner and its tests need into the default module cache.
	download := exec.CommandContext(t.Context(), "go", "mod", "download")
	download.Dir = filepath.Join(root, "shared", "runner", "runnertest")
	download.Env = append(os.Environ(), "GOWORK=off")
	if said, err := download.CombinedOutput(); err != nil {
		t.Fatalf("go mod download: %v\n%s", err, said)
	}
	cache, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	proxy := t.TempDir()
	for _, name := range release.Modules {
		if err := addToProxy(proxy, name, t.TempDir()); err != nil {
			t.Fatalf("module %s: %v", name, err)
		}
	}
	o := &outside{t: t, folder: t.TempDir()}
	// A separate module cache keeps these test releases out of the default one. -trimpath keeps
	// paths out of the compiled code, so that the next run can reuse the build cache.
	o.env = append(os.Environ(),
		"GOWORK=off", "GOFLAGS=-modcacherw -trimpath -buildvcs=false", "CGO_ENABLED=0",
		"GOSUMDB=off", "GONOPROXY=none", "GOPRIVATE=",
		"GOMODCACHE="+filepath.Join(t.TempDir(), "modules"),
		"GOPROXY=file://"+filepath.ToSlash(proxy)+",file://"+
			filepath.ToSlash(strings.TrimSpace(string(cache)))+"/cache/download")
	if testdata == "" {
		return o
	}
	if err := os.CopyFS(o.folder, os.DirFS(testdata)); err != nil {
		t.Fatal(err)
	}
	return o
}

// addToProxy adds the release of a module to a folder that Go can use as a module proxy, as in
// GOPROXY=file://FOLDER. scratch is an empty folder for temporary files.
func addToProxy(proxy, name, scratch string) error {
	goMod, err := release.GoMod(root, name, version)
	if err != nil {
		return err
	}
	if err := copyModule(filepath.Join(root, name), scratch); err != nil {
		return err
	}
	var archive bytes.Buffer
	err = errors.Join(
		os.WriteFile(filepath.Join(scratch, "go.mod"), goMod, 0o600),
		zip.CreateFromDir(&archive, module.Version{
			Path:    path.Join(release.ModulePathPrefix, name),
			Version: version,
		}, scratch))
	if err != nil {
		return err
	}
	at := filepath.Join(proxy, filepath.FromSlash(release.ModulePathPrefix),
		filepath.FromSlash(name), "@v")
	return errors.Join(
		os.MkdirAll(at, 0o700),
		os.WriteFile(filepath.Join(at, "list"), []byte(version+"\n"), 0o600),
		os.WriteFile(filepath.Join(at, version+".info"),
			fmt.Appendf(nil, `{"Version": %q, "Time": "2000-01-01T00:00:00Z"}`, version), 0o600),
		os.WriteFile(filepath.Join(at, version+".mod"), goMod, 0o600),
		os.WriteFile(filepath.Join(at, version+".zip"), archive.Bytes(), 0o600))
}

// copyModule copies the files of a module, without nested modules and without the files that npm
// has installed.
func copyModule(from, to string) error {
	return filepath.WalkDir(from, func(found string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, found)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if _, err := os.Stat(filepath.Join(found, "go.mod")); relative != "." && err == nil ||
				entry.Name() == "node_modules" {
				return fs.SkipDir
			}
			return os.MkdirAll(filepath.Join(to, relative), 0o700)
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		content, err := os.ReadFile(found)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, relative), content, 0o600)
	})
}

// modules returns the sorted names of all modules that the build may use. It uses "go mod graph".
// "go list -m all" would also look up the release time of each version, which the module cache
// lacks for modules from which nothing is compiled.
func (o *outside) modules() []string {
	o.t.Helper()
	var names []string
	for version := range strings.FieldsSeq(o.run("mod", "graph")) {
		name, _, _ := strings.Cut(version, "@")
		if name != "go" && name != "toolchain" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// run runs a go command and returns its stdout.
func (o *outside) run(args ...string) string {
	o.t.Helper()
	cmd := exec.CommandContext(o.t.Context(), "go", args...)
	cmd.Dir, cmd.Env = o.folder, o.env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	said, err := cmd.Output()
	if err != nil {
		o.t.Fatalf("go %s: %v\n%s%s", strings.Join(args, " "), err, said, &stderr)
	}
	return string(said)
}

func (o *outside) read(name string) string {
	o.t.Helper()
	content, err := os.ReadFile(filepath.Join(o.folder, name))
	if err != nil {
		o.t.Fatal(err)
	}
	return string(content)
}

// A runner in a new module outside of this repository can be built with package runner, can be
// tested with package runnertest, and runs executions.
func TestARunnerFromOutside(t *testing.T) {
	t.Parallel()
	o := newOutside(t, "testdata/runner")
	o.run("mod", "init", "example.com/shouter")
	o.run("get", "github.com/hookstart/hookstart/shared/runner@"+version)
	o.run("get", "-t", ".") // go mod tidy would also get the imports of other modules' tests
	o.run("vet", "./...")
	o.run("test", "./...")
	o.run("build", "-o", "shouter", ".")

	nc := natstest.Start(t)
	hookstart := runnertest.NewIngress(t, nc.Connect(t))
	id := hookstart.Start(t, runnertest.Post{Body: "hello"})
	cmd := exec.CommandContext(t.Context(), filepath.Join(o.folder, "shouter"))
	cmd.Env = append(os.Environ(), "HOOKSTART_NATS_URL="+nc.URL())
	childtest.Launch(t, cmd)
	if got := hookstart.Await(t, id); string(got.Output) != `{"shouted":"HELLO"}` {
		t.Errorf("%+v", got)
	}
	checkLinks(t, o)
}

// A new module that imports one of our public modules gets only the expected dependencies from it,
// and no server, exporter, logger or flag parser.
func TestWhatTheModulesBring(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		imports string
		brings  []string // all modules that the build may use; a name with a final / is a prefix
		has     string
	}{
		{"shared/runner", []string{
			"example.com/empty", release.ModulePathPrefix + "/proto",
			release.ModulePathPrefix + "/shared/execution",
			release.ModulePathPrefix + "/shared/retry",
			release.ModulePathPrefix + "/shared/runner",
			release.ModulePathPrefix + "/shared/stream",
			release.ModulePathPrefix + "/shared/tracing",
			"github.com/nats-io/nats.go", "github.com/nats-io/nkeys", "github.com/nats-io/nuid",
			"github.com/klauspost/compress",
			"go.opentelemetry.io/otel", "go.opentelemetry.io/otel/metric",
			"go.opentelemetry.io/otel/trace", "go.opentelemetry.io/auto/sdk",
			"github.com/go-logr/", "github.com/cespare/xxhash/v2", "go.opentelemetry.io/otel/log",
			"google.golang.org/protobuf", "github.com/google/go-cmp", "golang.org/x/",
			// OpenTelemetry and protobuf require these modules only for their own tests. None of
			// them is linked into the program.
			"github.com/davecgh/go-spew", "github.com/golang/protobuf", "github.com/kr/pretty",
			"github.com/pmezard/go-difflib",
			"github.com/rogpeppe/go-internal", "github.com/stretchr/testify", "go.yaml.in/yaml/v3",
			"gopkg.in/",
		}, "github.com/nats-io/nats.go"},
		{
			"executor/client/apiclient", []string{
				"example.com/empty", release.ModulePathPrefix + "/executor/client",
			}, release.ModulePathPrefix + "/executor/client",
		},
	} {
		o := newOutside(t, "")
		source := fmt.Sprintf("package main\n\nimport _ %q\n\nfunc main() {}\n",
			release.ModulePathPrefix+"/"+c.imports)
		if err := os.WriteFile(filepath.Join(o.folder, "main.go"), []byte(source),
			0o600); err != nil {
			t.Fatal(err)
		}
		o.run("mod", "init", "example.com/empty")
		o.run("get", release.ModulePathPrefix+"/"+c.imports+"@"+version)
		o.run("build", "-o", os.DevNull, ".")
		all := o.modules()
		t.Logf("%s: modules of go mod graph\n%s", c.imports, strings.Join(all, "\n"))
		has := false
		for _, name := range all {
			has = has || name == c.has
			if !slices.ContainsFunc(c.brings, func(allowed string) bool {
				return name == allowed ||
					strings.HasSuffix(allowed, "/") && strings.HasPrefix(name, allowed)
			}) {
				t.Errorf("%s brings %s", c.imports, name)
			}
		}
		if !has {
			t.Errorf("%s does not bring %s", c.imports, c.has)
		}
	}
}

// checkLinks checks that no server, storage or flag parsing code is linked into a runner.
func checkLinks(t *testing.T, o *outside) {
	t.Helper()
	linked := strings.Fields(o.run("list", "-deps", "."))
	if !slices.Contains(linked, "github.com/hookstart/hookstart/shared/stream") {
		t.Fatalf("the program links no stream: %v", linked)
	}
	for _, one := range linked {
		for _, not := range []string{
			"github.com/alecthomas/kong", "github.com/jackc/pgx", "github.com/nats-io/nats-server",
			"github.com/prometheus",
			"github.com/hookstart/hookstart/shared/embednats",
			"github.com/hookstart/hookstart/shared/program",
			"github.com/hookstart/hookstart/shared/registry",
			"go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters",
			"google.golang.org/grpc", "modernc.org", "database/sql", "testing",
		} {
			if one == not || strings.HasPrefix(one, not+"/") {
				t.Errorf("a runner links %s", one)
			}
		}
	}
	sums := o.read("go.sum")
	t.Logf("a runner links %d packages; its go.sum has %d lines, its go.mod is\n%s", len(linked),
		strings.Count(sums, "\n"), o.read("go.mod"))
}
